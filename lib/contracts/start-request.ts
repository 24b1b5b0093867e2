/** A line for the operator. */
export interface Notice {
  readonly level: 'debug' | 'log' | 'warn';
  /** In one line: which server, what happened, and what to do. */
  readonly message: string;
}

/** What a module tells its backends at start-up. */
export interface StartRequest {
  /** The module's `prefix`; absent when there is none. */
  readonly prefix?: string | undefined;
  /** Milliseconds that a caller waits for one answer. */
  readonly commandTimeout: number;
  /** Writes a line: at start-up, and whenever something happens later that no call fails of. */
  readonly report: (notice: Notice) => void;
}
