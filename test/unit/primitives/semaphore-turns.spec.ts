import { jest } from '@jest/globals';
import type { Permit, SemaphoreOptions, SemaphoreService } from 'nest-redis-lock';
import type { SemaphoreContended } from 'nest-redis-lock/events';
import type { SemaphoreStore } from '../../../lib/contracts/primitive-stores.js';
import { semaphoreChannels } from '../../../lib/events/semaphore-channels.js';
import { BriefMap } from '../../../lib/timing/brief-collections.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { Gate } from '../../support/gate.js';
import { semaphoresWith } from '../../support/lock-services.js';

const clock = new DrivenClock();
const { eventually } = clock;
beforeEach(() => clock.start());
afterEach(() => clock.stop());

/** Semaphores in memory, and what they ask their store. */
async function countedSemaphores(replace: (inner: SemaphoreStore) => Partial<SemaphoreStore> = () => ({})) {
  const asked = { acquire: 0, release: 0 };
  const app = await semaphoresWith((inner) => {
    const store = { ...inner, ...replace(inner) };
    return {
      ...store,
      acquire: (request) => {
        asked.acquire += 1;
        return store.acquire(request);
      },
      release: (request) => {
        asked.release += 1;
        return store.release(request);
      },
    };
  });
  return { semaphores: app.semaphores, asked, [Symbol.asyncDispose]: () => app.close() };
}

/** Turns of two holders. */
const withTwoTokens = (inner: SemaphoreStore): Partial<SemaphoreStore> => ({
  acquire: async (request) => {
    const answer = await inner.acquire(request);
    return answer.status === 'granted' ? { ...answer, tokens: 2 } : answer;
  },
  listen: (listener) =>
    inner.listen({ ...listener, onGrant: (ticket, grant) => listener.onGrant(ticket, { ...grant, tokens: 2 }) }),
});

/** What a holder shows of its permit. */
const shown = ({ owner, fencingToken }: Permit) => ({ owner, fencingToken });

/** As many calls as make a crowd, which wait behind those that came before; and what ends their wait. */
function crowdAt(semaphores: SemaphoreService, name: string, options: SemaphoreOptions): () => Promise<unknown> {
  const left = new AbortController();
  const calls = Array.from({ length: 16 }, () =>
    semaphores.acquire(name, { ...options, wait: Infinity, signal: left.signal }),
  );
  const refused = Promise.allSettled(calls);
  return () => {
    left.abort();
    return refused;
  };
}

it('passes a permit from caller to caller of a crowd without a request, each with a token of its own', async () => {
  await using app = await countedSemaphores();
  const { semaphores, asked } = app;
  const holds: { owner: string; fencingToken: number }[] = [];
  const calls = Array.from({ length: 20 }, () =>
    semaphores.withPermit('pass', { permits: 1 }, async (permit) => {
      holds.push(shown(permit));
      if (holds.length === 20) void leave();
    }),
  );
  const leave = crowdAt(semaphores, 'pass', { permits: 1 });
  await Promise.all(calls);
  expect(holds).toHaveLength(20);
  expect(new Set(holds.map(({ owner }) => owner)).size).toBe(1);
  const tokens = holds.map(({ fencingToken }) => fencingToken);
  expect(tokens).toEqual([...new Set(tokens)].toSorted((one, other) => one - other));
  await eventually(async () => (await semaphores.available('pass', { permits: 1 })) === 1);
  // The tickets of the first calls, which were no crowd yet: those that were not granted left the queue.
  expect(asked).toEqual({ acquire: 15, release: 15 });
});

it('passes a permit on that is given back by hand, and tells each holder when it loses its own', async () => {
  await using app = await countedSemaphores();
  const { semaphores, asked } = app;
  const first = await semaphores.acquire('by hand', { permits: 1 });
  const waiting = semaphores.acquire('by hand', { permits: 1 });
  const leave = crowdAt(semaphores, 'by hand', { permits: 1 });
  const { signal } = first;
  await first.release();
  const second = await waiting;
  expect(second.owner).toBe(first.owner);
  expect(second.fencingToken).toBeGreaterThan(first.fencingToken);
  expect([first.held, second.held, signal.aborted]).toEqual([false, true, false]);
  await first.release();
  expect(second.held).toBe(true);
  await leave();
  await second.release();
  // The permit, and the tickets that waited.
  await eventually(() => asked.release === asked.acquire);
  expect(await semaphores.available('by hand', { permits: 1 })).toBe(1);
});

it('gives a permit back to the store after a turn', async () => {
  await using app = await countedSemaphores();
  const owners: string[] = [];
  const calls = Array.from({ length: 4 }, () =>
    app.semaphores.withPermit('turn', { permits: 1 }, async ({ owner }) => {
      owners.push(owner);
      await new Promise((resolve) => setTimeout(resolve, 12));
      if (owners.length === 4) void leave();
    }),
  );
  const leave = crowdAt(app.semaphores, 'turn', { permits: 1 });
  await clock.settle(Promise.all(calls));
  expect(new Set(owners).size).toBe(4);
});

it('gives a permit back whose reserved tokens are used up', async () => {
  await using app = await countedSemaphores(withTwoTokens);
  const holds: { owner: string; fencingToken: number }[] = [];
  const calls = Array.from({ length: 6 }, () =>
    app.semaphores.withPermit('tokens', { permits: 1 }, async (permit) => {
      holds.push(shown(permit));
      if (holds.length === 6) void leave();
    }),
  );
  const leave = crowdAt(app.semaphores, 'tokens', { permits: 1 });
  await Promise.all(calls);
  expect(new Set(holds.map(({ owner }) => owner)).size).toBe(3);
  expect(new Set(holds.map(({ fencingToken }) => fencingToken)).size).toBe(6);
});

it.each<[string, SemaphoreOptions]>([
  ['another lease', { permits: 2, ttl: '1m' }],
  ['another number of permits', { permits: 1 }],
  ['several permits', { permits: 2, count: 2 }],
])('passes no permit on to a call that wants %s', async (_what, options) => {
  await using app = await countedSemaphores();
  const { semaphores } = app;
  const held = await Promise.all([1, 2].map(() => semaphores.acquire('other', { permits: 2 })));
  const waiting = semaphores.acquire('other', options);
  const leave = crowdAt(semaphores, 'other', options);
  for (const permit of held) await permit.release();
  const permit = await waiting;
  await leave();
  expect(held.map(({ owner }) => owner)).not.toContain(permit.owner);
  await permit.release();
});

it('passes no permit on where no crowd waits, so that the store decides who is next', async () => {
  await using app = await countedSemaphores();
  const owners = new Set<string>();
  const calls = Array.from({ length: 16 }, () =>
    app.semaphores.withPermit('few', { permits: 1 }, async ({ owner }) => void owners.add(owner)),
  );
  await Promise.all(calls);
  expect(owners.size).toBe(16);
});

it('asks the store for each call that is left of a crowd', async () => {
  await using app = await countedSemaphores(withTwoTokens);
  const { semaphores, asked } = app;
  const held = await semaphores.acquire('left', { permits: 1 });
  const waiting = Array.from({ length: 30 }, () => semaphores.acquire('left', { permits: 1 }));
  expect(asked.acquire).toBe(16);
  await held.release();
  for (const call of waiting.slice(0, 13)) await (await call).release();
  // Of 15 tickets, seven were granted: one for every second holder.
  expect(asked.acquire).toBe(16);
  await (await waiting[13])?.release();
  // One for each of the 15 that wait now.
  await eventually(() => asked.acquire === 16 + 7);
  for (const call of waiting.slice(14)) await (await clock.settle(call)).release();
});

it('keeps a permit for a call that comes within the tick, while other calls of the process hold some', async () => {
  await using app = await countedSemaphores();
  const { semaphores, asked } = app;
  const options = { permits: 5 };
  const end = new Gate();
  const beside = semaphores.withPermit('tick', options, () => end.opened);
  await eventually(async () => (await semaphores.available('tick')) === 4);
  for (let call = 0; call < 10; call += 1) await semaphores.withPermit('tick', options, async () => {});
  expect(asked.acquire).toBe(2);
  // What nobody has come for is not counted.
  expect(await semaphores.available('tick')).toBe(4);
  expect(asked.release).toBe(1);
  // By hand it goes back at once.
  await (await semaphores.acquire('tick', options)).release();
  expect(asked).toEqual({ acquire: 3, release: 2 });
  end.open();
  await beside;
  expect(await semaphores.available('tick')).toBe(5);
});

it('waits until the store has the permit back, where no other call of the process holds one', async () => {
  const arrive = new Gate();
  await using app = await countedSemaphores((inner) => ({
    release: async (request) => {
      await arrive.opened;
      return inner.release(request);
    },
  }));
  let ended = false;
  const call = app.semaphores.withPermit('last', { permits: 2 }, async () => {}).then(() => (ended = true));
  await eventually(() => app.asked.release === 1);
  await new Promise(setImmediate);
  expect(ended).toBe(false);
  arrive.open();
  await call;
});

it('gives back what it has kept before the last permit of the process', async () => {
  const released: string[] = [];
  await using app = await countedSemaphores((inner) => ({
    release: (request) => {
      released.push(request.ticket);
      return inner.release(request);
    },
  }));
  const end = new Gate();
  const owners: string[] = [];
  const hold = () =>
    app.semaphores.withPermit('both', { permits: 2 }, async ({ owner }) => {
      owners.push(owner);
      await end.opened;
    });
  const calls = [hold(), hold()];
  // No time passes, so that the turns go on.
  while (owners.length < 2) await new Promise(setImmediate);
  end.open();
  await calls[1];
  expect(released).toEqual(owners);
  await Promise.all(calls);
});

it('hands no kept permit to a call that comes when the turn is over, though within the tick', async () => {
  await using app = await countedSemaphores();
  const { semaphores, asked } = app;
  const beside = await semaphores.acquire('over', { permits: 3 });
  await semaphores.withPermit('over', { permits: 3 }, async () => {});
  // The process works on for the rest of the tick.
  jest.advanceTimersByTime(12);
  const permit = await semaphores.acquire('over', { permits: 3 });
  expect(asked).toEqual({ acquire: 3, release: 1 });
  for (const each of [beside, permit]) await each.release();
});

it('keeps no permit that came out of the queue, in which others may be next', async () => {
  await using app = await countedSemaphores();
  const { semaphores, asked } = app;
  const held = await Promise.all([1, 2].map(() => semaphores.acquire('queue', { permits: 2, ttl: '1m' })));
  const ends = [new Gate(), new Gate()];
  let holding = 0;
  const calls = ends.map((end) =>
    semaphores.withPermit('queue', { permits: 2 }, () => {
      holding += 1;
      return end.opened;
    }),
  );
  for (const permit of held) await permit.release();
  await eventually(() => holding === 2);
  const [acquired, released] = [asked.acquire, asked.release];
  ends[0]?.open();
  await calls[0];
  const next = await semaphores.acquire('queue', { permits: 2 });
  expect(asked).toEqual({ acquire: acquired + 1, release: released + 1 });
  await next.release();
  ends[1]?.open();
  await calls[1];
});

it('gives back for a call that tries once what calls with another lease have kept', async () => {
  await using app = await countedSemaphores();
  const { semaphores } = app;
  const options = { permits: 2 };
  const beside = await semaphores.acquire('lines', options);
  await semaphores.withPermit('lines', options, async () => {});
  const permit = await semaphores.tryAcquire('lines', { permits: 2, ttl: '10s' });
  expect(permit).not.toBeNull();
  for (const each of [beside, permit]) await each?.release();
});

it('refuses a call whose wait is over with the answer to one that tries once', async () => {
  const arrive = new Gate();
  await using app = await countedSemaphores((inner) => ({
    acquire: async (request) => {
      if (!request.queues) await arrive.opened;
      return inner.acquire(request);
    },
    beat: () => new Promise(() => {}),
  }));
  const { semaphores } = app;
  const held = await semaphores.acquire('overdue', { permits: 1 });
  const waiting = semaphores.acquire('overdue', { permits: 1, wait: 100 });
  let refused = false;
  waiting.catch(() => (refused = true));
  const trying = semaphores.tryAcquire('overdue', { permits: 1 });
  await clock.pass(120);
  expect(refused).toBe(false);
  arrive.open();
  expect(await trying).toBeNull();
  await expect(waiting).rejects.toMatchObject({ code: 'SEMAPHORE_TIMEOUT' });
  await held.release();
});

it('asks nothing for a call that ends while its own event is published', async () => {
  await using app = await countedSemaphores();
  const abort = new AbortController();
  const listener = () => abort.abort(new Error('enough'));
  semaphoreChannels.attempt.subscribe(listener);
  try {
    const call = app.semaphores.acquire('event', { permits: 1, signal: abort.signal });
    await expect(call).rejects.toThrow('enough');
  } finally {
    semaphoreChannels.attempt.unsubscribe(listener);
  }
  expect(app.asked.acquire).toBe(0);
});

it('asks the store for a call that tries once, also where a permit has been kept', async () => {
  await using app = await countedSemaphores();
  const { semaphores, asked } = app;
  const held = await semaphores.acquire('once', { permits: 2 });
  const [before, tried] = [asked.acquire, { owner: '' }];
  await semaphores.withPermit('once', { permits: 2 }, async ({ owner }) => void (tried.owner = owner));
  await using permit = await semaphores.tryAcquire('once', { permits: 2 });
  expect(asked.acquire).toBe(before + 2);
  expect(permit?.owner).not.toBe(tried.owner);
  await held.release();
});

it('gives back what is granted to a call that tried once and left before the answer', async () => {
  const arrive = new Gate();
  await using app = await countedSemaphores((inner) => ({
    acquire: async (request) => {
      await arrive.opened;
      return inner.acquire(request);
    },
  }));
  const { semaphores, asked } = app;
  const abort = new AbortController();
  const trying = semaphores.tryAcquire('left', { permits: 1, signal: abort.signal });
  abort.abort(new Error('enough'));
  await expect(trying).rejects.toThrow('enough');
  await eventually(() => asked.release === 1);
  arrive.open();
  await eventually(() => asked.release === 2);
  expect(await semaphores.available('left', { permits: 1 })).toBe(1);
});

it('does not pass a lost permit on', async () => {
  await using app = await countedSemaphores(() => ({ renew: () => Promise.reject(new Error('away')) }));
  const { semaphores } = app;
  const lost = await semaphores.acquire('lost', { permits: 1, ttl: 100 });
  const waiting = semaphores.acquire('lost', { permits: 1, ttl: 100 });
  const leave = crowdAt(semaphores, 'lost', { permits: 1, ttl: 100 });
  // No timer has run when the holder ends.
  jest.setSystemTime(Date.now() + 150);
  await expect(lost.release()).rejects.toMatchObject({ code: 'PERMIT_LOST' });
  const next = await clock.settle(waiting);
  expect(next.owner).not.toBe(lost.owner);
  expect(next.held).toBe(true);
  await leave();
  await next.release();
});

it('does not pass a permit on of whose lease too little is left', async () => {
  await using app = await countedSemaphores();
  const { semaphores } = app;
  const late = await semaphores.acquire('late', { permits: 1 });
  const waiting = semaphores.acquire('late', { permits: 1 });
  const leave = crowdAt(semaphores, 'late', { permits: 1 });
  // The machine was suspended, in which time its monotonic clock stood still.
  jest.setSystemTime(Date.now() + 20_000);
  expect(late.held).toBe(true);
  await late.release();
  const next = await clock.settle(waiting);
  expect(next.owner).not.toBe(late.owner);
  await leave();
  await next.release();
});

it('keeps no permit of an application that shuts down', async () => {
  const app = await semaphoresWith();
  const { semaphores } = app;
  const options = { permits: 3 };
  const end = new Gate();
  const holders = [1, 2].map(() => semaphores.withPermit('end', options, () => end.opened));
  await eventually(async () => (await semaphores.available('end')) === 1);
  const closed = app.close();
  end.open();
  const began = performance.now();
  await clock.settle(Promise.all([...holders, closed]));
  expect(performance.now() - began).toBeLessThan(90);
});

it('tells each call once that it met contention, whether it has asked the store itself or not', async () => {
  const contended: number[] = [];
  const listener = (event: unknown) => void contended.push((event as SemaphoreContended).call.count);
  semaphoreChannels.contended.subscribe(listener);
  try {
    await using app = await countedSemaphores();
    const { semaphores, asked } = app;
    const held = await semaphores.acquire('contended', { permits: 1 });
    const waiting = Array.from({ length: 20 }, () => semaphores.acquire('contended', { permits: 1 }));
    await eventually(() => contended.length === 20);
    waiting.push(semaphores.acquire('contended', { permits: 1 }));
    expect(contended).toHaveLength(21);
    // The first calls, which were no crowd yet.
    expect(asked.acquire).toBe(16);
    await held.release();
    for (const call of waiting) await (await clock.settle(call)).release();
    expect(contended).toHaveLength(21);
  } finally {
    semaphoreChannels.contended.unsubscribe(listener);
  }
});

it('asks the store for each call of a crowd that waits for longer than others are served', async () => {
  await using app = await countedSemaphores();
  const { semaphores, asked } = app;
  const held = await semaphores.acquire('patience', { permits: 1 });
  const waiting = Array.from({ length: 20 }, () => semaphores.acquire('patience', { permits: 1 }));
  await clock.pass(40);
  expect(asked.acquire).toBe(16);
  await clock.pass(20);
  expect(asked.acquire).toBe(21);
  await held.release();
  for (const call of waiting) await (await clock.settle(call)).release();
});

it('decides by an answer under way on the calls whose wait is over meanwhile', async () => {
  const [arrive, answers] = [new Gate(), { asked: 0, gone: false }];
  await using app = await countedSemaphores((inner) => ({
    acquire: async (request) => {
      answers.asked += 1;
      if (answers.gone) {
        await arrive.opened;
        return { status: 'granted', fencingToken: 9e15, tokens: 1, remaining: 30_000 };
      }
      return inner.acquire(request);
    },
    beat: async ({ waiters }) => {
      // The store has forgotten the first ticket.
      const states = waiters.map((_, index) => ({ status: index > 0 || answers.gone ? 'waiting' : 'gone' }) as const);
      answers.gone = true;
      return { states, nextEnd: Infinity, lastToken: 1 };
    },
    renew: async ({ ttl }) => ttl,
  }));
  const { semaphores } = app;
  const held = await semaphores.acquire('overdue', { permits: 1 });
  const waiting = [1, 2, 3].map(() => semaphores.acquire('overdue', { permits: 1, wait: 500 }));
  const settled = waiting.map(() => false);
  for (const [index, call] of waiting.entries()) call.catch(() => {}).finally(() => (settled[index] = true));
  await eventually(() => answers.gone && answers.asked === 5);
  await clock.pass(150);
  expect(settled).toEqual([false, false, false]);
  arrive.open();
  const permit = await waiting[0];
  expect(permit?.fencingToken).toBe(9e15);
  for (const call of waiting.slice(1)) await expect(call).rejects.toMatchObject({ code: 'SEMAPHORE_TIMEOUT' });
  await permit?.release().catch(() => {});
  await held.release();
});

it('keeps nothing of a name whose calls have ended', async () => {
  const [added, deleted] = [jest.spyOn(BriefMap.prototype, 'add'), jest.spyOn(BriefMap.prototype, 'delete')];
  try {
    await using app = await countedSemaphores(() => ({ renew: () => Promise.reject(new Error('away')) }));
    const { semaphores } = app;
    await semaphores.withPermit('served', { permits: 1 }, async () => {});
    const held = await semaphores.acquire('tried', { permits: 1 });
    expect(await semaphores.tryAcquire('tried', { permits: 1 })).toBeNull();
    const waiting = semaphores.acquire('tried', { permits: 1, wait: 50 });
    await expect(clock.settle(waiting)).rejects.toMatchObject({ code: 'SEMAPHORE_TIMEOUT' });
    await held.release();
    // A permit that is lost, and never given back.
    const forgotten = await semaphores.acquire('lost', { permits: 1, ttl: 100 });
    await clock.pass(200);
    expect(forgotten.held).toBe(false);
    const names = added.mock.calls.map(([name]) => name);
    expect(new Set(names)).toEqual(new Set(['served', 'tried', 'lost']));
    expect(deleted.mock.calls.map(([name]) => name)).toEqual(names);
  } finally {
    added.mockRestore();
    deleted.mockRestore();
  }
});
