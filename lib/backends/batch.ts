// Calls of many callers in one request to a store: who waits for which answer, and when a request goes.

import type { Pending } from '../contracts/store.js';

/** Sends the requests of one turn of the event loop together: one statement or message for many calls. */
export class TurnBatch<Request, Answer> {
  private requests: Request[] = [];
  private calls: BatchedCall<Answer>[] = [];
  private readonly gathering: Gathering;

  /**
   * @param most the most requests that are sent together
   */
  constructor(
    private readonly send: SendTogether<Request, Answer>,
    private readonly most: number,
    lanes?: Lanes,
  ) {
    this.gathering = new Gathering(() => this.flush(), lanes);
  }

  add(request: Request): Pending<Answer> {
    const call = new BatchedCall<Answer>();
    this.requests.push(request);
    this.calls.push(call);
    this.gathering.added(this.calls.length >= this.most);
    return call;
  }

  private flush(): void {
    const { requests, calls } = this;
    if (calls.length === 0) return;
    this.requests = [];
    this.calls = [];
    this.gathering.begun(requests.length);
    this.send(
      requests,
      (answers) => {
        this.gathering.ended(this.calls.length > 0);
        for (const [index, call] of calls.entries()) call.settle(answers[index]);
      },
      (error) => {
        this.gathering.ended(this.calls.length > 0);
        for (const call of calls) call.fail(error);
      },
    );
  }
}

/** Sends requests together; calls `answered` with the answer of each, in order, or an `Error` if that one failed. */
type SendTogether<Request, Answer> = (
  requests: readonly Request[],
  answered: (answers: readonly (Answer | Error)[]) => void,
  failed: (error: unknown) => void,
) => void;

/** One call of a batch. It keeps its outcome for each `then`, whenever that is called, as a promise does. */
export class BatchedCall<T> implements Pending<T> {
  private answered: ((answer: T) => void) | undefined = undefined;
  private failed: ((error: unknown) => void) | undefined = undefined;
  private outcome: { readonly answer: T } | { readonly error: unknown } | undefined = undefined;
  /** Settles for those who call `then` after the first one. */
  private others: Promise<T> | undefined = undefined;
  private settleOthers: (() => void) | undefined = undefined;

  /** `read`: makes the answer of the reply, where that is another one. */
  constructor(private readonly read?: (reply: unknown) => T) {}

  then(answered: (answer: T) => void, failed: (error: unknown) => void): void {
    if (this.answered || this.outcome) this.forOthers().then(answered, failed);
    else {
      this.answered = answered;
      this.failed = failed;
    }
  }

  settle(reply: unknown): void {
    if (reply instanceof Error) return this.fail(reply);
    let answer: T;
    try {
      answer = this.read ? this.read(reply) : (reply as T);
    } catch (error) {
      return this.fail(error);
    }
    if (this.outcome) return;
    this.outcome = { answer };
    this.settleOthers?.();
    this.answered?.(answer);
  }

  fail(error: unknown): void {
    if (this.outcome) return;
    this.outcome = { error };
    this.settleOthers?.();
    this.failed?.(error);
  }

  private forOthers(): Promise<T> {
    this.others ??= new Promise((resolve, reject) => {
      this.settleOthers = () => {
        const outcome = this.outcome as { answer: T } | { error: unknown };
        if ('error' in outcome) reject(outcome.error);
        else resolve(outcome.answer);
      };
      if (this.outcome) this.settleOthers();
    });
    return this.others;
  }
}

/** How many batches may be under way at a time. */
export interface Lanes {
  /** At this number of batches under way, further requests gather until one is answered. Default: no limit. */
  readonly lanes?: number;
  /** How long (ms) they gather at most: a batch may wait for a locked row. Default 10. */
  readonly longestHold?: number;
}

/**
 * Decides when requests that gather are sent: at once while nothing is under way and requests come one at a time, so
 * that a single one never waits; else those of one turn of the event loop together. Once `lanes` batches are under way,
 * the requests of the following turns gather until one is answered: fewer and larger batches cost the store less.
 */
class Gathering {
  private underWay = 0;
  /** Whether the last batch was of several requests: sent at once, the first of the next ones would go without them. */
  private several = false;
  private turnEnds = false;
  private hold: NodeJS.Timeout | undefined = undefined;
  private readonly lanes: number;
  private readonly longestHold: number;
  private readonly endTurn = () => {
    this.turnEnds = false;
    this.flush();
  };

  constructor(
    /** Sends what has gathered, if anything has. */
    private readonly send: () => void,
    { lanes = Infinity, longestHold = 10 }: Lanes = {},
  ) {
    this.lanes = lanes;
    this.longestHold = longestHold;
  }

  /** One more request waits. `full`: no other can join it. */
  added(full: boolean): void {
    if (full || (this.underWay === 0 && !this.several)) this.flush();
    else this.gather();
  }

  /** A batch was sent. */
  begun(size: number): void {
    this.underWay += 1;
    this.several = size > 1;
  }

  /** A batch was answered, or has failed; `waiting`: requests have gathered meanwhile. */
  ended(waiting: boolean): void {
    this.underWay -= 1;
    if (waiting) this.gather();
  }

  private gather(): void {
    if (this.turnEnds) return;
    if (this.underWay >= this.lanes) {
      this.hold ??= setTimeout(() => this.flush(), this.longestHold).unref();
      return;
    }
    this.turnEnds = true;
    setImmediate(this.endTurn);
  }

  private flush(): void {
    clearTimeout(this.hold);
    this.hold = undefined;
    this.send();
  }
}
