import type { LockOptions } from 'nest-redis-lock';
import { LockBackendError } from '../../../../lib/errors/lock-errors.js';
import { app, backend, Call, clock, NAME, openChannel, startContender } from '../../../support/contender-at-backend.js';
import { busy, type Command, granted } from '../../../support/scripted-backend.js';

startContender();

/** Milliseconds, as the application has it. */
const COMMAND_TIMEOUT = 3_000;

/** The requests of waiters may still be on their way when they were sent, as over HTTP. */
function answersBeforeBodies(): void {
  Object.assign(backend.traits, { writesAtOnce: false });
}

/** How long (ms) the call takes to be refused. */
async function refusedAfter({ begun, call }: { begun: number; call: Call }): Promise<number> {
  await clock.eventually(() => call.error, { within: 20_000, every: 1 });
  expect(call.error).toBeInstanceOf(LockBackendError);
  return performance.now() - begun;
}

const calling = (options: LockOptions) => ({ begun: performance.now(), call: new Call({ wait: 0, ...options }) });

describe('a call with wait: 0 ends within one commandTimeout', () => {
  it.each([
    ['alone', {}, 'enqueue'],
    ['to read', { mode: 'read' }, 'enqueue'],
    ['with order: fifo', { order: 'fifo' }, 'enqueue'],
    ['by a retry strategy', { retry: () => [].values() }, 'acquire'],
  ] as const)('where its tokens do not come: %s', async (_how, options, kind) => {
    const called = calling(options);
    const request = await backend.take(kind);
    await clock.pass(2_000);
    await request.answer(granted({ count: 0 }));
    await backend.take('mint');
    expect(await refusedAfter(called)).toBeLessThanOrEqual(COMMAND_TIMEOUT + 10);
    expect(backend.releases).toContain(request.ticket);
  });

  it.each([{}, { mode: 'read' }] as const)('where its short lease is not renewed: %j', async (options) => {
    answersBeforeBodies();
    const called = calling({ ttl: 10_000, ...options });
    const enqueue = await backend.take('enqueue');
    await clock.pass(2_000);
    await enqueue.answer(granted({ remaining: 7_000 }));
    await backend.take('renew');
    expect(await refusedAfter(called)).toBeLessThanOrEqual(COMMAND_TIMEOUT + 10);
    expect(backend.releases).toContain(enqueue.ticket);
  });

  it('where its minimum hold is not confirmed', async () => {
    Object.assign(backend, { keep: backend.release.bind(backend) });
    const called = calling({ ttl: 5_000, minHold: 4_000, renew: false });
    const enqueue = await backend.take('enqueue');
    await clock.pass(2_000);
    await enqueue.answer(granted({ remaining: 5_000 }));
    await backend.take('renew');
    expect(await refusedAfter(called)).toBeLessThanOrEqual(COMMAND_TIMEOUT + 10);
  });

  it('and a nested one, which extends the lease around it', async () => {
    backend.atOnce.enqueue = () => granted({ remaining: 5_000 });
    await app.locks.withLock(NAME, { ttl: 5_000, renew: false }, async () => {
      const called = calling({ ttl: 30_000, commandTimeout: 500 });
      await backend.take('renew');
      expect(await refusedAfter(called)).toBeLessThanOrEqual(510);
    });
  });
});

describe('a call that waits', () => {
  it('ends one commandTimeout after its wait where its short lease is not renewed', async () => {
    answersBeforeBodies();
    const called = calling({ ttl: 30_000, wait: 1_000 });
    await (await backend.take('enqueue')).answer(granted({ remaining: 10_000 }));
    expect(await refusedAfter(called)).toBeLessThanOrEqual(1_000 + COMMAND_TIMEOUT + 10);
  });

  it('gives up at once where its short lease is not renewed', async () => {
    answersBeforeBodies();
    const call = new Call({ ttl: 30_000 });
    const enqueue = await backend.take('enqueue');
    await enqueue.answer(granted({ remaining: 10_000 }));
    await backend.take('renew');
    const begun = performance.now();
    await clock.settle(call.giveUp());
    expect(call.error).toMatchObject({ message: 'given up' });
    expect(performance.now() - begun).toBeLessThanOrEqual(20);
    expect(backend.releases).toContain(enqueue.ticket);
  });
});

it('readers of one short lease all begin with its renewal', async () => {
  answersBeforeBodies();
  const readers = Array.from({ length: 3 }, () => new Call({ ttl: 30_000, mode: 'read' }));
  await (await backend.take('enqueue')).answer(granted({ remaining: 10_000 }));
  const renewal = await backend.take('renew');
  await clock.pass(100);
  expect(readers.map(({ lock }) => lock)).toEqual([undefined, undefined, undefined]);
  await renewal.answer({ status: 'renewed', remaining: 30_000 });
  await clock.pass(1);
  expect(readers.filter(({ lock }) => lock?.held)).toHaveLength(3);
});

/** Callers wait for this number of names, and the backend answers each request at once. */
async function waitingForMany(names: number) {
  await openChannel();
  backend.atOnce.enqueue = backend.atOnce.beat = () => busy({ first: true, remaining: 60_000 });
  const controller = new AbortController();
  const waits = Array.from({ length: names }, (_, index) =>
    app.locks.acquire(`job-${index}`, { wait: '10m', signal: controller.signal }).catch(() => {}),
  );
  await clock.pass(100);
  const end = async () => {
    controller.abort();
    await clock.settle(Promise.all(waits));
  };
  const beatsWithin = async (ms: number) => {
    const before = backend.sent.length;
    await clock.pass(ms);
    return backend.sent.slice(before).filter(({ kind }) => kind === 'beat') as Command<'beat'>[];
  };
  return { beatsWithin, end };
}

describe('the heartbeats of one process', () => {
  it('are 2,000 to 2,500 a second where it waits for thousands of names, and say for how long each pauses', async () => {
    Object.assign(backend.queue, { pauses: true });
    const { beatsWithin, end } = await waitingForMany(4_000);
    await beatsWithin(1_000);
    const beats = await beatsWithin(4_000);
    expect(new Set(beats.map(({ request }) => request.pause))).toEqual(new Set([2_000]));
    expect(beats.length / 4).toBeGreaterThanOrEqual(2_000);
    expect(beats.length / 4).toBeLessThanOrEqual(2_500);
    const last = new Map<string, number>();
    for (const { ticket, sentAt } of beats) {
      expect(sentAt - (last.get(ticket) ?? sentAt)).toBeLessThan(2_100);
      last.set(ticket, sentAt);
    }
    await end();
    // Nobody waits any more.
    const call = new Call({ wait: '10m' });
    const [beat] = await beatsWithin(600);
    expect(beat?.request.pause).toBeUndefined();
    await call.giveUp();
  });

  it('come at the usual times where the queue does not heed their pauses, or no message arrives', async () => {
    const { beatsWithin, end } = await waitingForMany(2_500);
    await beatsWithin(600);
    const beats = await beatsWithin(500);
    expect(beats).toHaveLength(2_500);
    expect(beats.every(({ request }) => request.pause === undefined)).toBe(true);
    await end();
  });

  it('come when the lease of the owner ends, whatever their pause', async () => {
    Object.assign(backend.queue, { pauses: true });
    const { beatsWithin, end } = await waitingForMany(6_000);
    await beatsWithin(600);
    backend.atOnce.beat = () => busy({ first: true, remaining: 1_000 });
    await beatsWithin(3_000);
    const beats = await beatsWithin(1_010);
    expect(new Set(beats.map(({ ticket }) => ticket)).size).toBe(6_000);
    await end();
  });
});

it('sends no more than 240 heartbeats at a time, then the others in order as answers come, or after 100 ms', async () => {
  await openChannel();
  backend.atOnce.enqueue = () => busy({ first: true, remaining: 60_000 });
  const controller = new AbortController();
  const waits = Array.from({ length: 600 }, (_, index) =>
    app.locks.acquire(`job-${index}`, { wait: 60_000, signal: controller.signal }).catch(() => {}),
  );
  await clock.pass(520);
  const beats = () => backend.all('beat').map(({ request }) => request.name);
  expect(beats()).toHaveLength(240);
  for (const beat of backend.all('beat').slice(0, 100)) await beat.answer(busy({ remaining: 60_000 }));
  expect(beats()).toEqual(Array.from({ length: 340 }, (_, index) => `job-${index}`));
  // A node does not answer: names at another one must not be passed over meanwhile.
  await clock.pass(100);
  expect(beats()).toEqual(Array.from({ length: 580 }, (_, index) => `job-${index}`));
  await clock.pass(100);
  expect(beats()).toEqual(Array.from({ length: 600 }, (_, index) => `job-${index}`));
  controller.abort();
  await clock.settle(Promise.all(waits));
});
