import type { LockBackend } from 'nest-redis-lock';
import type { LockQueue, Pending } from 'nest-redis-lock/backend';

/** `lost`: carried out, and answered with an error. `refused`: not carried out. */
export type Fault = 'lost' | 'refused';

/**
 * The calls to a backend, of which one fails. Calls that free something are not counted: they are what is looked at.
 */
export class FaultyBackend {
  readonly backend: LockBackend;
  /** What was called, in order, since `arm`. */
  readonly calls: string[] = [];
  private failing = Infinity;
  private fault: Fault = 'refused';

  constructor(inner: LockBackend) {
    const queue = inner.queue && this.queueOf(inner.queue);
    this.backend = {
      name: inner.name,
      traits: inner.traits,
      ...(queue && { queue }),
      acquire: (request) => this.call('acquire', () => inner.acquire(request)),
      ...(inner.acquireSeveral && {
        acquireSeveral: (request) => this.call('acquire', () => inner.acquireSeveral!(request)),
      }),
      renew: (requests) => {
        const answers = inner.renew(requests);
        return answers.map((answer) => this.call('renew', () => answer));
      },
      release: (request) => inner.release(request),
      mint: (request) => this.call('mint', () => inner.mint(request)),
      inspect: (request) => inner.inspect(request),
      ping: () => inner.ping(),
      close: () => inner.close(),
    };
  }

  /** The call of this number, counted from now on, fails. */
  arm(failing: number, fault: Fault): void {
    this.calls.length = 0;
    this.failing = failing;
    this.fault = fault;
  }

  /** Whether the call that was to fail was made. */
  get sprung(): boolean {
    return this.calls.length > this.failing;
  }

  private queueOf(inner: LockQueue): LockQueue {
    return {
      listen: (listener) => inner.listen(listener),
      enqueue: (request) => this.call('enqueue', () => inner.enqueue(request)),
      beat: (request) => this.call('beat', () => inner.beat(request)),
      requeue: (request) => this.call('requeue', () => inner.requeue(request)),
    };
  }

  private async call<T>(kind: string, carryOut: () => Pending<T>): Promise<T> {
    const fails = this.calls.push(kind) - 1 === this.failing;
    if (fails && this.fault === 'refused') throw new Error(`${kind} refused`);
    const answer = await new Promise<T>((resolve, reject) => {
      carryOut().then(resolve, reject);
    });
    if (fails) throw new Error(`the answer to ${kind} was lost`);
    return answer;
  }
}
