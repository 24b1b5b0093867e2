import type { Lock, LockOptions } from 'nest-redis-lock';
import { driftOf } from '../../lib/timing/clock.js';
import { DrivenClock } from './driven-clock.js';
import { startLockServices, type LockServices } from './lock-services.js';
import { busy, granted, ScriptedBackend, type Command } from './scripted-backend.js';

export const NAME = 'job';

export const clock = new DrivenClock();

export let backend: ScriptedBackend;

export let app: LockServices;

/** One call of `acquire`, and what became of it. */
export class Call {
  lock: Lock | undefined;
  error: unknown;
  private readonly controller = new AbortController();
  private readonly settled: Promise<void>;

  constructor(options: LockOptions = {}) {
    const { signal } = this.controller;
    this.settled = app.locks.acquire(NAME, { wait: 10_000, signal, ...options }).then(
      (lock) => void (this.lock = lock),
      (error: unknown) => void (this.error = error),
    );
  }

  async held(): Promise<Lock> {
    await this.settled;
    if (!this.lock) throw this.error;
    return this.lock;
  }

  async giveUp(): Promise<void> {
    this.controller.abort(new Error('given up'));
    await this.settled;
  }
}

/** Has the channel open and nothing else, so that the next call queues with its first request. */
export async function openChannel(): Promise<void> {
  const first = new Call();
  await (await backend.take('enqueue')).answer(busy());
  await backend.take('listen');
  await backend.take('enqueue');
  await first.giveUp();
  backend.sent.length = 0;
}

/** A call whose request to queue is under way. */
export async function joining(
  options: LockOptions = {},
): Promise<{ call: Call; enqueue: Command<'enqueue'>; ticket: string }> {
  await openChannel();
  const call = new Call(options);
  const enqueue = await backend.take('enqueue');
  expect(enqueue.request.claim).toBe(Math.min(1_000, Number(options.ttl ?? 30_000)));
  return { call, enqueue, ticket: enqueue.ticket };
}

/** A call whose ticket waits. */
export async function waiting(options: LockOptions = {}, answer: Parameters<typeof busy>[0] = {}) {
  const joined = await joining(options);
  await joined.enqueue.answer(busy(answer));
  return joined;
}

/** A waiting call whose heartbeat is under way. */
export async function beating(options: LockOptions = {}, answer: Parameters<typeof busy>[0] = {}) {
  const waits = await waiting(options, { first: true, remaining: 5, ...answer });
  return { ...waits, beat: await backend.take('beat') };
}

/** A call that holds, and others of this process that wait behind it. */
export async function holding(
  answer: Parameters<typeof granted>[0] = {},
  { options = {}, behind = 0 }: { options?: LockOptions; behind?: number } = {},
) {
  const { call, enqueue, ticket } = await joining(options);
  const others = Array.from({ length: behind }, () => new Call(options));
  await enqueue.answer(granted(answer));
  return { lock: await call.held(), ticket, others, enqueue };
}

/** How many names the process has in memory, because a caller wants them. */
export function contenders(): number {
  return app.backends.main.contenders?.size ?? 0;
}

/** The latest instant until which a lease of `lease` ms may be trusted, counted from the send of its request. */
export function until({ sentAt }: { sentAt: number }, lease: number): number {
  return sentAt + lease - driftOf(lease);
}

/** Until when the holder trusts it. */
export function trustedUntil(lock: Lock): number {
  return performance.now() + lock.remaining();
}

/** Nothing happens any more that was set off by what was delivered. */
export const quiet = () => clock.pass(30);

/** A holder whose turn is over, with others of this process behind it: the lock is being passed on. */
export async function requeueing({ behind = 1, count = 1_000 } = {}) {
  const { lock, ticket, others } = await holding({ waiting: 1, count }, { behind });
  await clock.pass(55);
  const outcome = { released: false, error: undefined as unknown };
  const released = lock.release().then(
    () => void (outcome.released = true),
    (error: unknown) => void (outcome.error = error),
  );
  const requeue = await backend.take('requeue');
  const { again } = requeue.request;
  expect(new Set([ticket, again]).size).toBe(2);
  return { lock, ticket, requeue, again, others, outcome, released, next: others[0] as Call };
}

/**
 * The process side of the hand-over: the test delivers answers and messages by hand, late, twice and in any order (the
 * rules R1 to R17 stand in docs/protocol.md).
 */
export function startContender(): void {
  beforeEach(async () => {
    clock.start();
    backend = new ScriptedBackend(clock);
    app = await startLockServices({ backend, commandTimeout: 3_000, shutdownGrace: 0 });
  });
  afterEach(async () => {
    backend.giveUp();
    await clock.settle(app.close());
    clock.stop();
  });
}
