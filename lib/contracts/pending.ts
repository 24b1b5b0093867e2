/** A promise, or another object that settles once by calling one of two functions: every lock takes this path. */
export interface Pending<T> {
  /** Calls one of the two functions, once, and never before it returns. */
  then(answered: (answer: T) => void, failed: (error: unknown) => void): unknown;
}
