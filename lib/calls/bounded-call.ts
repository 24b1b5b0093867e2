import { isLasting, refusalIn, type BackendRefusal, type Pending } from '../contracts/store.js';
import { messageOf, tellInOneLine } from '../errors/limited-log.js';
import { unawaited } from '../options/option-checks.js';
import { LinkedList, PlaceOf } from '../timing/brief-collections.js';
import type { Expiring, Timeout, Timeouts } from '../timing/clock.js';

/** What limits the calls to one backend or store, and makes their errors. `Subject`: the names or key concerned. */
interface CallRules<Subject, Failure extends Error> {
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
  private readonly place: PlaceOf<Interruptible> | undefined;
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
    /** The request, which is under way: the backend is at work while this process notes the time limit. */
    sent: Pending<T>,
  ) {
    this.answersBefore = rules.breaker ? rules.breaker.answers : 0;
    this.timeout = rules.limits.start(limit, this);
    this.place = rules.breaker?.underWay.push(new PlaceOf<Interruptible>(this));
    sent.then(
      (answer) => {
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
      },
      (error) => {
        if (this.over) return this.rules.heed(error);
        this.end();
        const { breaker } = this.rules;
        if (breaker) {
          // Redis answered, though with an error.
          if (error instanceof Error && error.name === 'ReplyError') breaker.answered();
          else breaker.failed();
        }
        this.failed(this.rules.explain(this.operation, this.subject, error));
      },
    );
  }

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
interface Diagnosable {
  /** Names the server, the cause and the remedy. */
  diagnose?(error?: unknown): Error | undefined;
}

/** What the backend or store says went wrong, shown in one line. Nothing where it throws, or says it by no error. */
export function diagnosisOf(diagnosable: Diagnosable, error?: unknown): Error | undefined {
  try {
    const diagnosis: unknown = unawaited(diagnosable.diagnose?.(error));
    if (diagnosis instanceof Error) return diagnosis === error ? diagnosis : tellInOneLine(diagnosis);
  } catch {
    // The call fails with its own error.
  }
  return undefined;
}

/** What a module checks at its start: until then its calls to a backend or store wait. */
class StartChecks {
  /** Settles when those under way have ended; `undefined` while none is. */
  underWay: Promise<unknown> | undefined = undefined;
  /** Begins them with the first call, where that comes before the start of the application. */
  due: (() => void) | undefined = undefined;

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

  protected readonly told: Told;

  constructor(
    private readonly diagnosable: Diagnosable,
    readonly checks = new StartChecks(),
  ) {
    this.told = toldBy(diagnosable);
  }

  get refusal(): BackendRefusal | undefined {
    return this.told.refusal;
  }

  heed(error: unknown): void {
    this.told.refusal ??= refusalIn(error);
  }

  /** Whether the store goes on refusing what failed with `error`, until somebody mends it: nobody waits for that. */
  goesOnRefusing(error: unknown): boolean {
    return this.refusal !== undefined || isLasting(error, { ofKey: true });
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
    const { refusal } = this.told;
    if (refusal && !givesBack) return Promise.reject(refusal);
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

/** What a backend or store has told all its callers in this process, for as long as the process uses it. */
interface Told {
  /** Why it refuses for good, once it has said so. */
  refusal: BackendRefusal | undefined;
}

const told = new WeakMap<Diagnosable, Told>();

function toldBy(diagnosable: Diagnosable): Told {
  const known = told.get(diagnosable) ?? { refusal: undefined };
  told.set(diagnosable, known);
  return known;
}

/** Milliseconds between two PINGs while the breaker is open. */
const PROBE_INTERVAL = 250;

/** A call under way, which can be made to fail before its time is over. */
interface Interruptible {
  interrupt(why: string): void;
}

/**
 * Stops sending commands for `open` ms after repeated failures; probes with PING and resumes on the first reply.
 *
 * It opens after `errors` failures in a row, or after one call during which the store answered nothing at all. When
 * `open` ms have passed without a reply to a PING, it closes, and one more failure opens it again.
 *
 * The pattern is Nygard's ("Release It!", 2007).
 */
export class CircuitBreaker {
  /** The calls that can still fail; each leaves its place when it ends. */
  readonly underWay = new LinkedList<PlaceOf<Interruptible>>();
  private failures = 0;
  isOpen = false;
  private openUntil = 0;
  private timer: NodeJS.Timeout | undefined = undefined;
  private probing = false;
  private stopped = false;
  /** How often it has opened. */
  opened = 0;
  /** How many answers have arrived. */
  answers = 0;

  constructor(
    private readonly options: { readonly errors: number; readonly open: number },
    private readonly probe: () => Pending<unknown>,
    private readonly onOpen: () => void,
    private readonly onClose: () => void,
  ) {}

  answered(): void {
    this.answers += 1;
    this.failures = 0;
    if (this.isOpen) this.close();
  }

  failed(): void {
    this.failures += 1;
    if (this.failures >= this.options.errors) this.trip();
  }

  /** A call got no answer in its time; `answersBefore` is what `answers` was when it began. */
  unanswered(answersBefore: number): void {
    if (this.answers === answersBefore) this.trip();
    else this.failed();
  }

  /** Fails every call that is under way. */
  interruptAll(why: string): void {
    for (const { value } of this.underWay.toArray()) value.interrupt(why);
  }

  /** Closes it for good: from now on every call is sent, however many have failed. */
  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.isOpen = false;
  }

  private trip(): void {
    if (this.isOpen || this.stopped) return;
    this.opened += 1;
    this.isOpen = true;
    this.openUntil = performance.now() + this.options.open;
    this.probeUntilAnswered();
    this.onOpen();
  }

  private probeUntilAnswered(): void {
    if (!this.isOpen) return;
    const left = this.openUntil - performance.now();
    if (left <= 0) {
      this.failures = this.options.errors - 1;
      return this.close();
    }
    this.timer = setTimeout(() => this.probeUntilAnswered(), Math.min(left, PROBE_INTERVAL)).unref();
    if (this.probing) return;
    this.probing = true;
    this.probe().then(
      () => {
        this.probing = false;
        this.answered();
      },
      () => {
        this.probing = false;
      },
    );
  }

  private close(): void {
    clearTimeout(this.timer);
    this.isOpen = false;
    this.onClose();
  }
}
