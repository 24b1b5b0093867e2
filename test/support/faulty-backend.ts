import type { LockBackend } from 'nest-redis-lock';
import type { LockQueue, LockStore, Pending } from 'nest-redis-lock/backend';

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

  constructor(backend: LockBackend) {
    this.backend = {
      name: backend.name,
      traits: backend.traits,
      open: (module) => this.storeOf(backend.open(module)),
      ping: () => backend.ping(),
      close: () => backend.close(),
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

  private storeOf(inner: LockStore): LockStore {
    const queue = inner.queue && this.queueOf(inner.queue);
    return {
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
      stop: () => inner.stop?.(),
    };
  }

  private queueOf(inner: LockQueue): LockQueue {
    return {
      listen: () => inner.listen(),
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
