import { refusalIn, type BackendRefusal, type Pending } from '../contracts/store.js';
import { messageOf, tellInOneLine } from '../errors/limited-log.js';
import type { Place } from '../timing/brief-collections.js';
import type { Expiring, Timeout, Timeouts } from '../timing/timeouts.js';
import type { CircuitBreaker, Interruptible } from './circuit-breaker.js';

/** What limits the calls to one backend or store, and makes their errors. `Subject`: the names or key concerned. */
export interface CallRules<Subject, Failure extends Error> {
  readonly limits: Timeouts;
  /** Absent where failures must not stop further calls. */
  readonly breaker: CircuitBreaker | undefined;
  /** The error for a call that the backend or its client rejected with `error`. */
  explain(operation: string, subject: Subject, error: unknown): Failure;
  /** The error for a call that was given up. */
  gaveUp(operation: string, subject: Subject, why: string): Failure;
  /** Keeps the refusal that `error` is, if it is one. */
  heed(error: unknown): void;
}

/**
 * One request to a backend or store, which fails after `limit` ms without an answer. A later answer goes to `late`: it
 * may be a grant that nobody wants any more. Uses callbacks rather than promises, because with `AsyncLocalStorage` each
 * promise on the path of every lock and every read costs time.
 */
export class BoundedCall<T, Subject, Failure extends Error> implements Expiring, Interruptible {
  private readonly timeout: Timeout;
  private readonly place: Place<Interruptible> | undefined;
  private readonly answersBefore: number;
  private over = false;

  constructor(
    private readonly rules: CallRules<Subject, Failure>,
    private readonly operation: string,
    private readonly subject: Subject,
    private readonly limit: number,
    private readonly answered: (answer: T) => void,
    private readonly failed: (error: Failure) => void,
    private readonly late: ((answer: T) => void) | undefined,
  ) {
    const { breaker, limits } = rules;
    this.answersBefore = breaker ? breaker.answers : 0;
    this.timeout = limits.start(limit, this);
    this.place = breaker?.underWay.push(this);
  }

  readonly onAnswer = (answer: T): void => {
    this.rules.breaker?.answered();
    const { over } = this;
    if (!over) this.end();
    try {
      if (over) this.late?.(answer);
      else this.answered(answer);
    } catch (error) {
      // It is no answer of its kind: a backend of the application's may return anything.
      const failure = this.rules.explain(this.operation, this.subject, error);
      if (!over) this.failed(failure);
    }
  };

  readonly onError = (error: unknown): void => {
    if (this.over) return this.rules.heed(error);
    this.end();
    const { breaker } = this.rules;
    if (breaker) {
      // Redis answered, though with an error.
      if (error instanceof Error && error.name === 'ReplyError') breaker.answered();
      else breaker.failed();
    }
    this.failed(this.rules.explain(this.operation, this.subject, error));
  };

  expire(): void {
    const { breaker } = this.rules;
    if (!breaker) return this.giveUp(`no answer within ${Math.round(this.limit)} ms`);
    // After a standstill of this process an answer may have arrived but not been read; such a call must not open the
    // breaker.
    setImmediate(() => {
      if (this.over) return;
      this.giveUp(`no answer within ${Math.round(this.limit)} ms`);
      breaker.unanswered(this.answersBefore);
    });
  }

  interrupt(why: string): void {
    if (!this.over) this.giveUp(why);
  }

  private giveUp(why: string): void {
    this.end();
    this.failed(this.rules.gaveUp(this.operation, this.subject, why));
  }

  private end(): void {
    this.over = true;
    this.timeout.leave();
    this.place?.leave();
  }
}

/** A backend or store that can say why a call failed. */
export interface Diagnosable {
  /** Names the server, the cause and the remedy. */
  diagnose?(error?: unknown): Error | undefined;
}

/** What the backend or store says went wrong, shown in one line. */
export function diagnosisOf(diagnosable: Diagnosable, error?: unknown): Error | undefined {
  const diagnosis = diagnosable.diagnose?.(error);
  return diagnosis && diagnosis !== error ? tellInOneLine(diagnosis) : diagnosis;
}

/** What a module checks at its start: until then its calls to a backend or store wait. */
export class StartChecks {
  /** Settles when those under way have ended; `undefined` while none is. */
  underWay: Promise<unknown> | undefined;
  /** Begins them with the first call, where that comes before the start of the application. */
  due: (() => void) | undefined;

  add(check: Promise<unknown>): void {
    const ended = () => {
      if (this.underWay === all) this.underWay = undefined;
    };
    const all: Promise<unknown> = Promise.allSettled([this.underWay, check]).then(ended);
    this.underWay = all;
  }
}

/** The errors and limits of the calls to one backend or store, with the cause that it diagnoses itself. */
export abstract class BoundedCalls<Subject, Failure extends Error> implements CallRules<Subject, Failure> {
  abstract readonly limits: Timeouts;
  abstract readonly breaker: CircuitBreaker | undefined;

  constructor(
    private readonly diagnosable: Diagnosable,
    readonly checks = new StartChecks(),
  ) {}

  /** Why the backend or store refuses for good, once it has said so to any caller in this process. */
  get refusal(): BackendRefusal | undefined {
    return refusals.get(this.diagnosable);
  }

  heed(error: unknown): void {
    const refusal = refusalIn(error);
    if (refusal && !this.refusal) refusals.set(this.diagnosable, refusal);
  }

  /**
   * Makes a call, once the check at the start has ended: what that refuses is not granted before. Not if the backend
   * refuses for good: what passes by chance the next time is no safer. What `givesBack` goes to that one, too, and in
   * turn: behind the request whose caller gave up. A call that throws, or returns no promise, as one of an
   * application's backend may, fails a little later, as one that rejects.
   */
  begin<T>(call: () => Pending<T>, givesBack = false): Pending<T> {
    const { checks } = this;
    if (checks.due) beginDue(checks, checks.due);
    const { underWay } = checks;
    if (underWay)
      return underWay.then(
        () => new Promise<T>((resolve, reject) => this.begin(call, givesBack).then(resolve, reject)),
      );
    const refusal = givesBack ? undefined : refusals.get(this.diagnosable);
    if (refusal) return Promise.reject(refusal);
    try {
      const pending = call() as Pending<T> | undefined;
      if (typeof pending?.then === 'function') return pending;
      throw new Error('it returned no promise');
    } catch (error) {
      return Promise.reject<T>(error);
    }
  }

  /** Names the operation, what it was about, and why it failed. */
  abstract failure(operation: string, subject: Subject, why: string, cause?: unknown): Failure;

  explain(operation: string, subject: Subject, error: unknown): Failure {
    this.heed(error);
    const cause = refusalIn(error) ?? diagnosisOf(this.diagnosable, error) ?? error;
    this.heed(cause);
    return this.failure(operation, subject, messageOf(cause), cause);
  }

  gaveUp(operation: string, subject: Subject, why: string): Failure {
    const cause = diagnosisOf(this.diagnosable);
    return this.failure(operation, subject, cause ? `${why}: ${cause.message}` : why, cause);
  }
}

function beginDue(checks: StartChecks, begin: () => void): void {
  checks.due = undefined;
  begin();
}

/** What each backend and store has refused, for as long as the process uses it. */
const refusals = new WeakMap<Diagnosable, BackendRefusal>();
