/** A promise, or another object that settles once by calling one of two functions: every lock takes this path. */
export interface Pending<T> {
  /** Calls one of the two functions, once, and never before it returns. */
  then(answered: (answer: T) => void, failed: (error: unknown) => void): unknown;
}

/** A line for the operator. */
export interface Notice {
  readonly level: 'debug' | 'log' | 'warn';
  /** One line: which server, what happened, and what to do. */
  readonly message: string;
}

/** What a module passes to its backends at start-up. */
export interface StartRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** Milliseconds that one call may take. */
  readonly commandTimeout: number;
  /** Logs a line: at start-up, and later when something happens of which no call fails. */
  readonly report: (notice: Notice) => void;
  /** Aborts when the module stops: from then on nothing is reported to it. Absent: until the backend is closed. */
  readonly stopped?: AbortSignal | undefined;
}
