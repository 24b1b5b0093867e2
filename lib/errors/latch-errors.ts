import { PrimitiveError } from './primitive-errors.js';

/** The latch was not open after `wait` ms. HTTP 503. */
export class LatchTimeoutError extends PrimitiveError<'LATCH_TIMEOUT'> {
  /** Milliseconds that the caller waited. */
  readonly waited: number;
  /** How many arrivals were missing; `undefined` if the latch was not defined. */
  readonly remaining: number | undefined;

  constructor(key: string, { waited, remaining }: { waited: number; remaining: number | undefined }) {
    const why = remaining === undefined ? 'was not defined, or its ttl is over' : `missed ${remaining} arrivals`;
    super({
      code: 'LATCH_TIMEOUT',
      status: 503,
      publicMessage: 'The service is busy. Try again later.',
      message: `Latch "${key}" was not open after a wait of ${Math.round(waited)} ms: it ${why}`,
      keys: [key],
    });
    this.waited = waited;
    this.remaining = remaining;
  }
}

/** There is no latch of that name: it was not defined, or its `ttl` is over. HTTP 500. */
export class LatchNotDefinedError extends PrimitiveError<'LATCH_NOT_DEFINED'> {
  constructor(key: string) {
    super({
      code: 'LATCH_NOT_DEFINED',
      status: 500,
      publicMessage: 'Internal server error',
      message: `Latch "${key}" does not exist: it was not defined, or its ttl is over; call define() first`,
      keys: [key],
    });
  }
}
