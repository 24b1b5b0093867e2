import { memory } from 'nest-redis-lock/memory';
import type { AcquireAnswer, LockStore } from 'nest-redis-lock/backend';
import { QueueingBackend } from '../../../../lib/lock/line/named-backend.js';
import { PolledQueue } from '../../../../lib/lock/line/polled-queue.js';
import { DrivenClock } from '../../../support/driven-clock.js';
import { type LockServices, startLockServices } from '../../../support/lock-services.js';
import { busy, ScriptedBackend } from '../../../support/scripted-backend.js';

describe('a queue of a store that is polled', () => {
  const TOKENS = { first: 1, count: 100 };
  const GRANTED: AcquireAnswer = { status: 'granted', tokens: TOKENS, remaining: 10_000, waiting: undefined };
  const BUSY: AcquireAnswer = { status: 'busy', name: 'stock', owner: '', remaining: Infinity };

  let asked: string[];
  let answers: AcquireAnswer[];
  let queue: PolledQueue;
  let now: number;
  const { now: realNow } = performance;
  beforeEach(() => {
    [asked, answers, now] = [[], [], 1_000];
    performance.now = () => now;
    const acquire = async ({ name }: { name: string }) => {
      asked.push(name);
      return answers.shift() ?? GRANTED;
    };
    queue = new PolledQueue({ acquire } as unknown as LockStore);
  });
  afterEach(() => {
    performance.now = realNow;
  });

  const ticket = { name: 'stock', ticket: 'p:1', ttl: 10_000 };
  const enqueue = (patient = true) => Promise.resolve(queue.enqueue({ ...ticket, claim: 1_000, patient }));
  const beat = () => Promise.resolve(queue.beat(ticket));
  /** The range of what is drawn at random. */
  function paces(name = 'stock'): [least: number, most: number] {
    const drawn = Array.from({ length: 300 }, () => queue.pace({ name }));
    return [Math.min(...drawn), Math.max(...drawn)];
  }
  function expectPaces(least: number, most: number): void {
    const [lowest, highest] = paces();
    expect(lowest).toBeGreaterThanOrEqual(least);
    expect(lowest).toBeLessThan(least + 2);
    expect(highest).toBeLessThanOrEqual(most);
    expect(highest).toBeGreaterThan(most - 2);
  }

  it('a waiter tries every 5 to 25 ms', () => {
    expectPaces(5, 25);
  });

  it('after its turn, a process asks later than those that wait try again', async () => {
    queue.giveWay({ name: 'stock' });
    const pause = queue.pace({ name: 'stock' });
    expect(pause).toBeGreaterThanOrEqual(30);
    expect(pause).toBeLessThanOrEqual(50);
    expect(await enqueue()).toMatchObject({ status: 'busy', remaining: Infinity });
    expect(asked).toEqual([]);
    // One that does not wait asks at once, as those for other names do.
    void queue.enqueue({ ...ticket, claim: undefined, patient: true });
    void queue.enqueue({ ...ticket, name: 'other', claim: 1_000, patient: true });
    expect(asked).toEqual(['stock', 'other']);
    now += pause;
    expect(await enqueue()).toMatchObject({ status: 'granted' });
  });

  it('after its turn, a process asks at once for a caller that would not wait for long enough', async () => {
    queue.giveWay({ name: 'stock' });
    expect(await enqueue(false)).toMatchObject({ status: 'granted' });
    expect(asked).toEqual(['stock']);
  });

  it('a process tries the more often the longer its turn is over, until as many have had theirs as it can tell', () => {
    queue.giveWay({ name: 'stock' });
    now += 60;
    expectPaces(15, 25);
    now += 80;
    expectPaces(5, 10);
    now += 400;
    expectPaces(5, 25);
  });

  it('a grant says of those that wait what the store does', async () => {
    answers.push(BUSY, GRANTED, { ...GRANTED, waiting: 0 });
    await beat();
    expect(await beat()).toMatchObject({ waiting: undefined });
    expect(await beat()).toMatchObject({ waiting: 0 });
  });

  it('names are forgotten once they are no longer contended', async () => {
    for (let index = 0; index < 1_000; index += 1) {
      queue.giveWay({ name: `n${index}` });
      now += 1;
    }
    const { turns } = queue as unknown as { turns: { turns: Map<string, unknown> } };
    expect(turns.turns.size).toBeLessThanOrEqual(500);
  });
});

describe('a process that has lost a lock at a store that is polled', () => {
  const clock = new DrivenClock();
  beforeEach(() => clock.start());
  afterEach(() => clock.stop());

  it('lets others ask first: its own callers always came before them', async () => {
    const backend = memory();
    const [one, other] = await Promise.all([startLockServices({ backend }), startLockServices({ backend })]);
    await one.locks.acquire('stock', { ttl: 200, renew: false });
    const owners: string[] = [];
    const wait = async (name: string, { locks }: LockServices) => {
      await using _ = await locks.acquire('stock', { wait: 10_000 });
      owners.push(name);
    };
    const waits = [wait('its own', one), wait('another', other)];
    await clock.pass(400);
    await clock.settle(Promise.all(waits));
    expect(owners).toEqual(['another', 'its own']);
    await clock.settle(Promise.all([one.close(), other.close()]));
  });
});

describe('the channel of a queue', () => {
  const clock = new DrivenClock();
  let backend: ScriptedBackend;
  let app: LockServices;
  let controller: AbortController;

  beforeEach(async () => {
    clock.start();
    controller = new AbortController();
    backend = new ScriptedBackend(clock);
    app = await startLockServices({ backend, commandTimeout: 3_000, shutdownGrace: 0 });
  });
  afterEach(async () => {
    backend.giveUp();
    await clock.settle(app.close());
    clock.stop();
  });

  /** A call that waits in the queue although the channel could not be opened. */
  async function waitsWithoutChannel(): Promise<{ givenUp: Promise<unknown> }> {
    backend.atOnce.listen = () => new Error('refused');
    const { signal } = controller;
    const givenUp = app.locks.acquire('job', { wait: Infinity, ttl: 1_000, signal }).catch(() => {});
    await (await backend.take('enqueue')).answer(busy());
    const queued = await backend.take('enqueue');
    expect(queued.request.claim).toBe(1_000);
    await queued.answer(busy());
    return { givenUp };
  }

  /** Lets the waiting ticket send heartbeats for `ms`. */
  async function beatFor(ms: number): Promise<void> {
    const beats = Math.ceil(ms / 500);
    for (let beat = 0; beat < beats; beat++) {
      await clock.pass(500);
      await (await backend.take('beat')).answer(busy());
    }
  }

  it('is opened again, after a pause, while a caller waits', async () => {
    const { givenUp } = await waitsWithoutChannel();
    expect(backend.all('listen')).toHaveLength(1);
    delete backend.atOnce.listen;
    await beatFor(1_500);
    expect(backend.all('listen')).toHaveLength(2);
    controller.abort();
    await givenUp;
  });

  it('is not opened again once it is open', async () => {
    const { givenUp } = await waitsWithoutChannel();
    backend.atOnce.listen = () => {};
    await beatFor(4_000);
    expect(backend.all('listen')).toHaveLength(2);
    controller.abort();
    await givenUp;
  });
});

describe('a backend under its name', () => {
  const COMMAND_TIMEOUT = 1_000;

  const clock = new DrivenClock();

  beforeEach(() => clock.start());
  afterEach(() => clock.stop());

  class SilentBackend extends ScriptedBackend {
    label(): Promise<void> {
      return new Promise(() => {});
    }
  }

  it('stops within one time limit of a backend that answers neither the releases nor the label', async () => {
    const backend = new SilentBackend(clock);
    delete backend.atOnce.release;
    const options = { prefix: undefined, commandTimeout: COMMAND_TIMEOUT, label: 'shop', report: () => {} };
    const named = new QueueingBackend('', backend, options, { warn: () => {} });
    named.releaser.abandon({ names: ['job'], ticket: named.contenders.nextTicket() }, 30_000);
    const stoppedAt = performance.now();
    await clock.settle(named.stop());
    expect(performance.now() - stoppedAt).toBeLessThan(1.5 * COMMAND_TIMEOUT);
  });
});
