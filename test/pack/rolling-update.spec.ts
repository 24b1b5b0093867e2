import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { eventually } from '../support/eventually.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { tarball } from './support/packed.js';
import { unpacked, VersionedProcess } from './support/rolling.js';

/** A build without protocol versions, read locks and primitives. */
const EARLIER = fileURLToPath(new URL('./earlier/nest-redis-lock-6a8b9cc.tgz', import.meta.url));

const WAIT = { wait: 60_000 };

let server: RedisServer;
let redis: Redis;
let evidence: Redis;
let folders: { earlier: string; present: string };
let earlier: VersionedProcess;
let present: VersionedProcess;
let another: VersionedProcess;
const started: VersionedProcess[] = [];

async function start(which: keyof typeof folders): Promise<VersionedProcess> {
  const process = await VersionedProcess.start(folders[which], server.port);
  started.push(process);
  return process;
}

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
  evidence = new Redis({ host: '127.0.0.1', port: server.port, db: 1 });
  folders = {
    earlier: await unpacked(EARLIER, 'earlier'),
    present: await unpacked(tarball(), 'present'),
  };
  [earlier, present, another] = await Promise.all([start('earlier'), start('present'), start('present')]);
}, 240_000);

afterAll(async () => {
  await Promise.all(started.map((process) => process.kill()));
  redis.disconnect();
  evidence.disconnect();
  await server.stop();
});

/** Runs each case in both directions: what the first does, the second meets. */
const DIRECTIONS = [
  { from: 'the earlier', to: 'the present', pair: () => [earlier, present] as const },
  { from: 'the present', to: 'the earlier', pair: () => [present, earlier] as const },
];

const waiting = (name: string, count: number) =>
  eventually(async () => (await redis.llen(`lock:{${name}}:queue`)) === count);

it('the fixture is the build of the earlier commit, which knows no read locks', async () => {
  await expect(
    import(join(folders.earlier, 'dist', 'index.js')) as Promise<Record<string, unknown>>,
  ).resolves.not.toHaveProperty('SemaphoreService');
  await expect(import(join(folders.present, 'dist', 'index.js'))).resolves.toHaveProperty('SemaphoreService');
});

describe('locks', () => {
  it('contended by both versions are held by one at a time, with tokens that rise, and are handed over by message', async () => {
    const granted: string[] = [];
    const listener = redis.duplicate();
    listener.on('pmessage', (_pattern, _channel, message: string) => {
      const [kind, ticket = ''] = message.split(' ');
      if (kind === 'grant') granted.push(ticket.slice(0, ticket.indexOf(':')));
    });
    await listener.psubscribe('lock:process:*');
    const contest = { callers: 8, times: 100, options: WAIT };
    await Promise.all([earlier, present].map((process) => process.contend('hot', contest)));
    listener.disconnect();
    expect(await evidence.lrange('findings', 0, -1)).toEqual([]);
    expect(await evidence.get('counter:hot')).toBe('1600');
    // Each process was handed the lock by the other one.
    expect(new Set(granted).size).toBe(2);
  });

  it('in order of arrival are handed from version to version', async () => {
    const contest = { callers: 4, times: 40, options: { ...WAIT, order: 'fifo' as const } };
    await Promise.all([earlier, present, another].map((process) => process.contend('fifo', contest)));
    expect(await evidence.lrange('findings', 0, -1)).toEqual([]);
    expect(await evidence.get('counter:fifo')).toBe('480');
  });

  it.each(DIRECTIONS)(
    'held by $from version are renewed, keep $to one out, and let it in when they end',
    async ({ from, pair }) => {
      const [holder, waiter] = pair();
      const name = `renewed by ${from}`;
      const { owner, token } = await holder.acquire(name, { ttl: 3_000 });
      expect(await redis.get(`lock:{${name}}`)).toBe(owner);
      expect(await waiter.inspect(name)).toMatchObject({ owner, fencingToken: token });
      const waits = waiter.acquire(name, WAIT);
      await waiting(name, 1);
      // The lease has ended twice by then, unless it was renewed.
      const until = performance.now() + 7_000;
      await eventually(() => performance.now() > until);
      expect(await redis.get(`lock:{${name}}`)).toBe(owner);
      expect(await holder.holds(name)).toBe(true);
      await holder.release(name);
      expect((await waits).token).toBeGreaterThan(token);
      await waiter.release(name);
    },
  );

  it.each(DIRECTIONS)('of $from version that is killed pass to $to one', async ({ from, pair }) => {
    const survivor = pair()[1];
    const victim = await start(from === 'the earlier' ? 'earlier' : 'present');
    const name = `left by ${from}`;
    const { token } = await victim.acquire(name, { ttl: 2_000 });
    const waits = survivor.acquire(name, WAIT);
    await waiting(name, 1);
    await victim.kill();
    expect((await waits).token).toBeGreaterThan(token);
    await survivor.release(name);
  });

  it.each(DIRECTIONS)(
    'pass over a waiter of $from version that was killed, to one of $to version',
    async ({ from, pair }) => {
      const [, holder] = pair();
      const victim = await start(from === 'the earlier' ? 'earlier' : 'present');
      const name = `not for ${from}`;
      await holder.acquire(name);
      victim.acquire(name, WAIT).catch(() => {});
      await waiting(name, 1);
      const waits = another.acquire(name, WAIT);
      await waiting(name, 2);
      await victim.kill();
      await holder.release(name);
      await waits;
      await another.release(name);
    },
  );

  it.each(DIRECTIONS)('that $from version keeps for minHold stay taken for $to one', async ({ from, pair }) => {
    const [holder, other] = pair();
    const name = `kept by ${from}`;
    const { owner } = await holder.acquire(name, { minHold: 60_000 });
    await holder.release(name);
    expect(await redis.get(`lock:{${name}}`)).toBe(owner);
    expect(await other.tryAcquire(name)).toBe(false);
  });

  it.each(DIRECTIONS)('of several names are taken all or none beside $from version', async ({ from, pair }) => {
    const [holder, other] = pair();
    const [one, two] = [`first of ${from}`, `second of ${from}`];
    await holder.acquire([one, two]);
    expect(await other.tryAcquire([two, one])).toBe(false);
    const waits = other.acquire([two, one], WAIT);
    await eventually(async () => (await redis.llen(`lock:{${one}}:queue`)) + (await redis.llen(`lock:{${two}}:queue`)));
    await holder.release([one, two]);
    await waits;
    expect(await holder.tryAcquire(one)).toBe(false);
    await other.release([two, one]);
    expect(await holder.tryAcquire(one)).toBe(true);
    await holder.release(one);
  });

  it.each(DIRECTIONS)(
    'that $from version frees by force are lost for their holder in $to one',
    async ({ from, pair }) => {
      const [forces, holder] = pair();
      const name = `forced by ${from}`;
      await holder.acquire(name);
      expect(await forces.forceRelease(name)).toBe(true);
      await expect(holder.release(name)).rejects.toThrow('LockLostError');
    },
  );
});

describe('read locks', () => {
  it('keep a process of the earlier version out until the last reader has ended', async () => {
    await present.acquire('read', { mode: 'read' });
    await another.acquire('read', { mode: 'read' });
    expect(await redis.get('lock:{read}')).toMatch(/^readers /);
    expect(await earlier.tryAcquire('read')).toBe(false);
    const waits = earlier.acquire('read', WAIT);
    await waiting('read', 1);
    await present.release('read');
    expect(await redis.get('lock:{read}')).toMatch(/^readers /);
    await another.release('read');
    await waits;
    expect(await present.tryAcquire('read', { mode: 'read' })).toBe(false);
    await earlier.release('read');
  });

  it('that wait for a lock of the earlier version are served one after the other', async () => {
    await earlier.acquire('served');
    const readers = [present, another].map(async (process) => {
      await process.acquire('served', { mode: 'read', ...WAIT });
      return process;
    });
    await waiting('served', 2);
    await earlier.release('served');
    const first = await Promise.race(readers);
    // The earlier version gave the first of them the whole lock.
    expect(await redis.get('lock:{served}')).not.toMatch(/^readers /);
    expect(await first.holds('served')).toBe(true);
    await first.release('served');
    for (const reader of await Promise.all(readers)) if (reader !== first) await reader.release('served');
    expect(await redis.get('lock:{served}')).toBeNull();
  });

  it('that the earlier version frees by force are lost with their next renewal', async () => {
    await present.acquire('robbed', { mode: 'read', ttl: 2_000 });
    expect(await earlier.forceRelease('robbed')).toBe(true);
    await eventually(async () => !(await present.holds('robbed')));
  });

  it('beside writers of the earlier version end for them', async () => {
    const contest = { callers: 4, times: 25, options: WAIT };
    const writing = { over: false };
    const writes = earlier.contend('mixed', contest).finally(() => (writing.over = true));
    const reads = [present, another].map(async (process) => {
      while (!writing.over) {
        await process.acquire('mixed', { mode: 'read', ...WAIT });
        await process.release('mixed');
      }
    });
    await Promise.all([writes, ...reads]);
    expect(await evidence.lrange('findings', 0, -1)).toEqual([]);
    expect(await evidence.get('counter:mixed')).toBe('100');
  });
});

describe('cached values', () => {
  const VALUES = {
    text: 'text',
    number: 7,
    none: null,
    typed: { at: new Date(0), ids: new Set([1, 2]), names: new Map([[1, 'one']]), big: 12n, bytes: Buffer.from('b') },
    long: 'x'.repeat(10_000),
  };

  it.each(DIRECTIONS)('that $from version stored are the same in $to one', async ({ from, pair }) => {
    const [writer, reader] = pair();
    for (const [name, value] of Object.entries(VALUES)) {
      const key = `${name} of ${from}`;
      await writer.cache('set', key, value, { ttl: '1h', tags: ['tagged'] });
      expect(await reader.load(key, 'loaded')).toEqual({ value, loaded: false });
      await writer.cache('del', key);
      // The first level of the reader keeps the value until the message has arrived.
      await eventually(async () => (await reader.load(key, 'loaded')).value === 'loaded');
    }
  });

  it.each(DIRECTIONS)('are loaded by $from version alone while $to one waits', async ({ from, pair }) => {
    const [loads, waits] = pair();
    const key = `loaded by ${from}`;
    const loading = loads.load(key, 'first', { delay: 2_000 });
    await eventually(() => evidence.llen(`loads:${key}`));
    expect(await waits.load(key, 'second')).toEqual({ value: 'first', loaded: false });
    await loading;
  });

  it.each(DIRECTIONS)('that $from version deletes while $to one loads are not stored', async ({ from, pair }) => {
    const [deletes, loads] = pair();
    const key = `deleted by ${from}`;
    const loading = loads.load(key, 'old', { delay: 2_000 });
    await eventually(() => evidence.llen(`loads:${key}`));
    await deletes.cache('invalidate', key);
    await loading;
    expect(await deletes.load(key, 'new')).toEqual({ value: 'new', loaded: true });
  });

  it.each(DIRECTIONS)('in the first level of $to version go when $from one changes them', async ({ from, pair }) => {
    const [changes, keeps] = pair();
    const changed = {
      key: () => changes.cache('invalidate', `key of ${from}`),
      prefix: () => changes.cache('deleteByPrefix', `prefix of ${from}`),
      tag: () => changes.cache('deleteByTag', `tag of ${from}`),
      set: () => changes.cache('set', `set of ${from}`, 'new', { ttl: '1h' }),
    };
    for (const [how, change] of Object.entries(changed)) {
      const key = `${how} of ${from}`;
      const options = { ttl: '1h', tags: [`tag of ${from}`] };
      await changes.cache('set', key, 'old', options);
      expect((await keeps.load(key, 'loaded', { options })).value).toBe('old');
      await change();
      await eventually(async () => (await keeps.load(key, 'new', { options })).value === 'new');
    }
  });

  it.each(DIRECTIONS)('that $from version expires softly are loaded again by $to one', async ({ from, pair }) => {
    const [expires, reads] = pair();
    const key = `stale by ${from}`;
    await reads.cache('set', key, 'old', { ttl: '1h', staleTtl: '1h', tags: [key] });
    await expires.cache('expireByTag', key);
    await eventually(async () => (await reads.load(key, 'new', { options: { tags: [key] } })).value === 'new');
  });

  it('are counted together', async () => {
    for (const process of [earlier, present, earlier, another]) await process.cache('incr', 'count', { ttl: '1h' });
    expect(await earlier.cache('get', 'count')).toBe(4);
    expect(await present.cache('get', 'count')).toBe(4);
  });

  it.each(DIRECTIONS)('have one Bloom filter: $to version finds what $from one added', async ({ from, pair }) => {
    const [adds, looks] = pair();
    await adds.rebuild([`id of ${from}`, 'other']);
    expect(await looks.mayHave(`id of ${from}`)).toBe(true);
    expect(await looks.mayHave('never added')).toBe(false);
  });

  it.each(DIRECTIONS)(
    'whose last deletion $from version scheduled before it was killed are deleted',
    async ({ from }) => {
      const victim = await start(from === 'the earlier' ? 'earlier' : 'present');
      const key = `scheduled by ${from}`;
      await expect(victim.dieBeforeDeletion(key, 5_000)).rejects.toThrow('The process has ended');
      expect(await redis.exists(`cache:${key}`)).toBe(1);
      await eventually(async () => (await redis.exists(`cache:${key}`)) === 0);
    },
  );
});

it('neither version said that anything was wrong, except for locks that were freed by force', () => {
  const lines = started.flatMap(({ output }) => output.split('\n')).filter((line) => /WARN|ERROR/.test(line));
  expect(lines.filter((line) => !/"(forced by|robbed).* lost \(taken\)/.test(line))).toEqual([]);
});
