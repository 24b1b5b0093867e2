import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type Lock, LockConfigError, LockTimeoutError, memory } from 'nest-redis-lock';
import { eventually } from '../../../support/eventually.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { QueueCrew } from '../../../support/queue-crew.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { HEARING, WatchedHeartbeats } from '../../../support/watched-heartbeats.js';

const PROCESSES = ['p0', 'p1', 'p2'];

let server: RedisServer;
let one: LockApp;
let other: LockApp;
/** Those of `one` and `other`: held up, a heartbeat cannot find what no message has told. */
let heartbeats: WatchedHeartbeats;
let plain: Redis;
let crew: QueueCrew;

beforeAll(async () => {
  server = await startRedisServer();
  plain = new Redis(server.url);
  crew = new QueueCrew(server.port);
  heartbeats = new WatchedHeartbeats();
  [one, other] = await Promise.all([
    startLockApp({ backend: heartbeats.on(server.url), commandTimeout: 300 }),
    startLockApp({ backend: heartbeats.on(server.url) }),
    crew.hire(...PROCESSES),
  ]);
});
afterEach(() => heartbeats.heal());
afterAll(async () => {
  await crew.dismiss();
  await one.close();
  await other.close();
  plain.disconnect();
  await server.stop();
});

const keysOfQueue = (name: string) => plain.exists(`lock:{${name}}:queue`, `lock:{${name}}:waiters`);
const refused = (waiting: Promise<Lock>) => waiting.catch((error: unknown) => error);

/** Waits until the queue has this number of tickets. */
async function queued(name: string, tickets: number): Promise<void> {
  await eventually(async () => (await plain.llen(`lock:{${name}}:queue`)) === tickets, { every: 1 });
}

function expectStrictlyRising(tokens: readonly number[]): void {
  for (const [i, token] of tokens.entries()) if (i > 0) expect(token).toBeGreaterThan(tokens[i - 1] as number);
}

describe("order: 'fifo'", () => {
  const serve = async (name: string, waiters: number) => {
    const holder = await one.locks.acquire(name);
    const arrived: string[] = [];
    const options = { order: 'fifo', wait: 60_000 } as const;
    while (arrived.length < waiters) {
      // Now and then two of one process in a row.
      const process = PROCESSES[Math.floor(arrived.length * 0.7) % 3] as string;
      const as = `${process}-${arrived.length}`;
      await crew.take(process, name, as, { options });
      arrived.push(as);
      await queued(name, arrived.length);
    }
    await holder.release();
    await eventually(async () => (await crew.grants(name)).length === waiters, { within: 60_000 });
    return { arrived, granted: await crew.grants(name) };
  };

  it('serves 300 waiters of three processes in order of arrival', async () => {
    // A process that the machine stops is passed over, or loses its lock, as it should be: then another try decides.
    await crew.standstills();
    let served = await serve('fifo', 300);
    let findings = await crew.findings();
    const wrong = () => findings.length > 0 || String(served.granted) !== String(served.arrived);
    for (let again = 1; again <= 2 && wrong() && (await crew.standstills()) > 0; again += 1) {
      expect(findings.filter((finding) => !finding.includes('lost (expired)'))).toEqual([]);
      served = await serve(`fifo:${again}`, 300);
      findings = await crew.findings();
    }
    expect(served.granted).toEqual(served.arrived);
    expect(findings).toEqual([]);
  });

  it('keeps the order within one process too, where the default does not ask the backend', async () => {
    const holder = await one.locks.acquire('fifo-here');
    const inside: number[] = [];
    const take = async (app: LockApp, as: number) => {
      const lock = await app.locks.acquire('fifo-here', { order: 'fifo' });
      inside.push(as);
      await lock.release();
    };
    const calls: Promise<void>[] = [];
    for (let i = 0; i < 20; i++) {
      calls.push(take(i % 2 ? one : other, i));
      await queued('fifo-here', i + 1);
    }
    await holder.release();
    await Promise.all(calls);
    expect(inside).toEqual(Array.from({ length: 20 }, (_, i) => i));
  });

  it('is refused by a backend that keeps no queue', async () => {
    await using app = await startLockApp({ backend: memory() });
    await expect(app.locks.acquire('a', { order: 'fifo' })).rejects.toBeInstanceOf(LockConfigError);
    await expect(app.locks.withLock(['a', 'b'], { order: 'fifo' }, async () => {})).rejects.toBeInstanceOf(
      LockConfigError,
    );
    await (await app.locks.acquire('a', { wait: 0 })).release();
  });
});

describe('several processes that want the same', () => {
  it('are served alike, one at a time, with tokens that rise', async () => {
    const callers = (process: string) => Array.from({ length: 20 }, (_, i) => ({ name: 'hot', as: `${process} ${i}` }));
    await Promise.all(['p0', 'p1'].map((process) => crew.contend(process, callers(process))));
    await crew.allServed(40, 20);
    await crew.stop('p0', 'p1');
    const served = Object.entries(await crew.served());
    const total = served.reduce((sum, [, count]) => sum + count, 0);
    const share = served.filter(([as]) => as.startsWith('p0')).reduce((sum, [, count]) => sum + count, 0) / total;
    expect(share).toBeGreaterThan(0.15);
    expect(share).toBeLessThan(0.85);
    expect(served.length).toBe(40);
    const tokens = await crew.tokens('hot');
    expect(tokens.length).toBe(total);
    expectStrictlyRising(tokens);
    expect(await crew.findings()).toEqual([]);
  });

  it('are all served beside two callers that want several names at once', async () => {
    const names = ['a', 'b', 'c'];
    const options = { wait: 60_000 };
    for (const process of ['p0', 'p1']) {
      const single = Array.from({ length: 25 }, (_, i) => ({
        name: names[i % 3] as string,
        as: `${process} ${i}`,
        options,
      }));
      await crew.contend(process, [{ name: names, as: `${process} several`, options }, ...single]);
    }
    await crew.allServed(52, 2);
    await crew.stop('p0', 'p1');
    for (const name of names) expectStrictlyRising(await crew.tokens(name));
    expect(await crew.findings()).toEqual([]);
  });

  it('are served beside a caller that takes the name again at once, in a loop', async () => {
    const served = async () => (await crew.served())['greedy'] ?? 0;
    await crew.contend('p0', [{ name: 'greedy', as: 'greedy' }]);
    await eventually(served);
    const before: number[] = [];
    for (let i = 0; i < 8; i++) {
      const start = await served();
      const lock = await one.locks.acquire('greedy', { wait: 20_000 });
      const end = await served();
      before.push(end - start);
      await lock.release();
      // Else it would have it again for the rest of its own turn.
      await eventually(async () => (await served()) > end);
    }
    await crew.stop('p0');
    // A turn is 64 holds, or 50 ms; it starts when the holder learns that another process waits.
    expect(before.toSorted((a, b) => a - b)[4]).toBeLessThan(1.5 * 64);
    expect(await crew.findings()).toEqual([]);
  });

  it('are all counted by inspect', async () => {
    const lock = await one.locks.acquire('counted');
    const stop = new AbortController();
    const wait = (app: LockApp, order: 'batched' | 'fifo') =>
      refused(app.locks.acquire('counted', { signal: stop.signal, order }));
    const here = [wait(one, 'batched'), wait(one, 'batched'), wait(one, 'batched')];
    const there = [wait(other, 'batched'), wait(other, 'batched'), wait(other, 'fifo'), wait(other, 'fifo')];
    await crew.take('p2', 'counted', 'p2');
    await queued('counted', 4);
    // A process has one ticket for all who wait in it, unless they asked for the order of arrival.
    expect(await one.locks.inspect('counted')).toMatchObject({ owner: lock.owner, waiting: 3 + 1 + 2 + 1 });
    expect(await other.locks.inspect('counted')).toMatchObject({ owner: lock.owner, waiting: 4 + 1 });
    stop.abort();
    await Promise.all([...here, ...there]);
    await queued('counted', 1);
    expect(await one.locks.inspect('counted')).toMatchObject({ waiting: 1 });
    await lock.release();
    await eventually(async () => (await crew.grants('counted')).length === 1);
    await eventually(async () => (await one.locks.inspect('counted')) === null);
  });
});

describe('a waiter that gives up', () => {
  it.each(['by its time', 'by its signal'])('%s leaves the queue at once, even as the only one', async (how) => {
    const name = `leaves ${how}`;
    const holder = await one.locks.acquire(name);
    const stop = new AbortController();
    const options = how === 'by its time' ? { wait: 1_000 } : { wait: 10_000, signal: stop.signal };
    const waiting = refused(other.locks.acquire(name, options));
    await queued(name, 1);
    stop.abort(new Error('enough'));
    const error = await waiting;
    expect(error).toMatchObject(how === 'by its time' ? { code: 'LOCK_TIMEOUT' } : { message: 'enough' });
    await eventually(async () => (await keysOfQueue(name)) === 0);
    const next = other.locks.acquire(name, HEARING);
    await queued(name, 1);
    heartbeats.holdGrants();
    await holder.release();
    await (await next).release();
    expect(await keysOfQueue(name)).toBe(0);
  });

  it('does not delay the waiter behind it', async () => {
    const holder = await one.locks.acquire('abandoned');
    const stop = new AbortController();
    const first = refused(other.locks.acquire('abandoned', { signal: stop.signal }));
    await queued('abandoned', 1);
    await crew.take('p0', 'abandoned', 'second');
    await queued('abandoned', 2);
    stop.abort();
    await first;
    await queued('abandoned', 1);
    await holder.release();
    await eventually(async () => (await crew.grants('abandoned')).length === 1);
  });

  it('twenty times in a row leaves nothing that delays a later one', async () => {
    const holder = await one.locks.acquire('in-vain');
    for (let i = 0; i < 20; i++) {
      expect(await refused(other.locks.acquire('in-vain', { wait: 30 }))).toBeInstanceOf(LockTimeoutError);
    }
    await eventually(async () => (await keysOfQueue('in-vain')) === 0);
    const next = other.locks.acquire('in-vain', HEARING);
    await queued('in-vain', 1);
    heartbeats.holdGrants();
    await holder.release();
    await (await next).release();
  });

  it('just as it is granted passes the lock on', async () => {
    for (let i = 0; i < 30; i++) {
      const holder = await one.locks.acquire('crossing');
      const stop = new AbortController();
      const waiting = refused(other.locks.acquire('crossing', { signal: stop.signal }));
      await queued('crossing', 1);
      const released = holder.release();
      if (i % 3 === 1) await released;
      if (i % 3 === 2) await new Promise(setImmediate);
      stop.abort();
      const answer = await waiting;
      if (answer instanceof Object && 'owner' in answer) await (answer as Lock).release();
      await released;
      // At once or by a message: what was granted is given back, and its claim does not have to end.
      heartbeats.holdGrants();
      await (await one.locks.acquire('crossing', HEARING)).release();
      heartbeats.heal();
    }
    await eventually(async () => (await keysOfQueue('crossing')) === 0);
  });

  it('while Redis hangs has left the queue once it goes on', async () => {
    const holder = await other.locks.acquire('hung', { ttl: 60_000 });
    const waiting = refused(one.locks.acquire('hung', { wait: 1_000 }));
    await queued('hung', 1);
    server.process.pause();
    try {
      expect(await waiting).toBeInstanceOf(Error);
    } finally {
      server.process.resume();
    }
    await eventually(async () => (await keysOfQueue('hung')) === 0, { within: 10_000 });
    await holder.release();
    await (await one.locks.acquire('hung')).release();
  });
});

describe('one grant for several callers of a process', () => {
  it('gives each its own token', async () => {
    const tokens: number[] = [];
    const take = async () => {
      const lock = await one.locks.acquire('tokens');
      tokens.push(lock.fencingToken);
      await new Promise(setImmediate);
      await lock.release();
    };
    await Promise.all(Array.from({ length: 300 }, take));
    expect(tokens.length).toBe(300);
    expectStrictlyRising(tokens);
    const { fencingToken } = await other.locks.acquire('tokens').then(async (lock) => {
      await lock.release();
      return lock;
    });
    expect(fencingToken).toBeGreaterThan(tokens.at(-1) as number);
  });

  it('gives each its own ttl', async () => {
    const first = await one.locks.acquire('own-ttl', { ttl: 2_000, renew: false });
    const [second, third] = [
      one.locks.acquire('own-ttl', { ttl: 20_000 }),
      one.locks.acquire('own-ttl', { ttl: 1_500, renew: false }),
    ];
    expect(first.remaining()).toBeLessThanOrEqual(2_000);
    await first.release();
    const long = await second;
    await sleep(2_100);
    expect(long.held).toBe(true);
    await long.release();
    const short = await third;
    expect(short.remaining()).toBeLessThanOrEqual(1_500);
    expect(short.held).toBe(true);
    await eventually(() => !short.held);
    await expect(short.release()).rejects.toMatchObject({ reason: 'expired' });
  });

  it("gives each its own maxHold and signal, and does not take the next one's away", async () => {
    const first = await one.locks.acquire('own-signal', { maxHold: 1_000 });
    const wait = 20_000;
    const calls = [
      one.locks.acquire('own-signal', { wait }),
      one.locks.acquire('own-signal', { wait, maxHold: 1_500 }),
    ] as const;
    const last = one.locks.acquire('own-signal', { wait });
    await new Promise((resolve) => first.signal.addEventListener('abort', resolve));
    expect(first.signal.reason).toMatchObject({ reason: 'maxHold' });
    const second = await calls[0];
    await expect(first.release()).rejects.toMatchObject({ reason: 'maxHold' });
    expect(second.held).toBe(true);
    expect(await plain.get('lock:{own-signal}')).toBe(second.owner);
    // Longer than `maxHold` of the next one, whose clock starts with its own hold.
    await sleep(1_600);
    await second.release();
    const third = await calls[1];
    expect(second.signal.aborted).toBe(false);
    expect(third.held).toBe(true);
    await third.release();
    const fourth = await last;
    await sleep(1_600);
    expect(third.signal.aborted).toBe(false);
    expect(fourth.held).toBe(true);
    expect(fourth.signal.aborted).toBe(false);
    await fourth.release();
  });
});

describe('an application that ends', () => {
  it('hands over what it held, also where others have waited for long', async () => {
    const first = await one.locks.acquire('closing');
    const leaving = await startLockApp({ redis: server.url });
    const waiting = leaving.locks.acquire('closing');
    await queued('closing', 1);
    await first.release();
    await (await waiting).release();
    const before = await one.locks.acquire('closing');
    const body = new Promise<void>((entered) => {
      void leaving.locks.withLock('closing', async () => {
        entered();
        await sleep(20);
      });
    });
    await queued('closing', 1);
    await before.release();
    heartbeats.holdGrants();
    const next = one.locks.acquire('closing', HEARING);
    await body;
    await leaving.close();
    await (await next).release();
    expect(leaving.logger.lines).toEqual([]);
  });
});

describe('several names, one of which is lost while the others are waited for', () => {
  it.each([
    ['renew: false', { ttl: 3_000, renew: false }],
    ['maxHold', { maxHold: 3_000 }],
  ])('are all held when the body begins (%s)', async (_, options) => {
    const [a, b] = [`part-a:${_}`, `part-b:${_}`] as const;
    let holderOfB = await other.locks.acquire(b);
    const taken = one.locks.withLock([a, b], { ...options, wait: 20_000 }, async (lock) => {
      const owners = await Promise.all([plain.get(`lock:{${a}}`), plain.get(`lock:{${b}}`)]);
      // The limits begin with the hold; the lease of `a`, which was renewed up to a second ago, is extended to them.
      await eventually(() => lock.remaining() > 2_000 || !lock.held);
      return { held: lock.held, owned: owners.every((owner) => owner?.startsWith(prefix(lock))) };
    });
    await queued(b, 1);
    // Refused once for each of them, it takes them one by one at last, and waits for `b` with `a` in hand.
    const holderOfA = await other.locks.acquire(a);
    await holderOfB.release();
    await queued(a, 1);
    holderOfB = await other.locks.acquire(b);
    await holderOfA.release();
    await eventually(
      async () => (await plain.exists(`lock:{${a}}`)) === 1 && (await plain.llen(`lock:{${b}}:queue`)) === 1,
    );
    await sleep(3_500);
    await holderOfB.release();
    expect(await taken).toEqual({ held: true, owned: true });
  });

  const prefix = ({ owner }: { owner: string }) => owner.slice(0, owner.lastIndexOf(':'));
});

describe('a client without an offline queue', () => {
  it('receives its grants', async () => {
    const client = new Redis(server.url, { enableOfflineQueue: false });
    await new Promise((resolve) => client.once('ready', resolve));
    const app = await startLockApp({ redis: client });
    const channels = async () => ((await plain.pubsub('CHANNELS', 'lock:process:*')) as string[]).length;
    const before = await channels();
    const holder = await one.locks.acquire('offline');
    const waiting = app.locks.acquire('offline');
    await queued('offline', 1);
    await eventually(async () => (await channels()) > before);
    await holder.release();
    await (await waiting).release();
    await app.close();
    client.disconnect();
  });
});

describe('two modules with one backend', () => {
  it('both receive their grants', async () => {
    const backend = heartbeats.on(server.url);
    const [first, second] = await Promise.all([startLockApp({ backend }), startLockApp({ backend })]);
    for (const app of [first, second]) {
      const holder = await one.locks.acquire('shared');
      const waiting = app.locks.acquire('shared', HEARING);
      await queued('shared', 1);
      heartbeats.holdGrants();
      await holder.release();
      await (await waiting).release();
      heartbeats.heal();
    }
    await first.close();
    await second.close();
  });
});

describe('after all of that', () => {
  it('nothing is left but fences, labels and notes of versions, which expire', async () => {
    await eventually(async () => (await plain.keys('*')).every((key) => /(:fence|:label|versions)$/.test(key)));
    const keys = await plain.keys('*');
    expect(keys.length).toBeGreaterThan(15);
    for (const key of keys) {
      expect(await plain.pttl(key)).toBeGreaterThan(0);
      const [, name] = /\{(.*)\}/.exec(key) ?? [];
      if (name !== undefined) expect(await one.locks.inspect(name)).toBeNull();
    }
  });
});
