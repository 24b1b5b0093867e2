import { join } from 'node:path';
import { Redis } from 'ioredis';
import { type CacheService, LockLostError, type LockService } from 'nest-redis-lock';
import { redlock } from 'nest-redis-lock/redlock';
import { testServices } from 'nest-redis-lock/testing';
import { type CacheInstance, closeCaches, openCaches } from '../support/cache-instance.js';
import { Child } from '../support/child.js';
import { eventually } from '../support/eventually.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';
import { clockAhead, clockByFile, setClock } from '../support/servers/shifted-clock.js';
import { removeDirectory, temporaryDirectory } from '../support/servers/temporary-directory.js';

describe('nodes of redlock', () => {
  const NODES = 5;
  const LEASE = 60_000;

  interface Node {
    readonly server: RedisServer;
    /** The file of its clock. */
    readonly clock: string;
  }

  let directory: string;
  let nodes: Node[];
  let holder: LockService;
  let other: LockService;
  const closing: (() => Promise<void>)[] = [];

  beforeEach(async () => {
    directory = temporaryDirectory();
    nodes = await Promise.all(
      Array.from({ length: NODES }, async (_, index) => {
        const clock = join(directory, String(index));
        return { server: await startRedisServer({ env: clockByFile(clock) }), clock };
      }),
    );
    [holder, other] = [open(), open()];
  });
  afterEach(async () => {
    await Promise.all(closing.splice(0).map((close) => close()));
    await Promise.all(nodes.map(({ server }) => server.stop()));
    removeDirectory(directory);
  });

  function open(): LockService {
    const backend = redlock(nodes.map(({ server }) => server.url));
    const { locks, close } = testServices({ backend, cache: false, shutdownGrace: 0 });
    closing.push(close);
    return locks;
  }

  /** Sets the clocks of these nodes forward by more than the lease, once each of them has the lock. */
  async function stepBeyond(indexes: readonly number[], name: string): Promise<void> {
    for (const index of indexes) {
      const { server, clock } = nodes[index] as Node;
      const client = new Redis(server.port);
      // A grant needs three nodes; the other two may get it later.
      await eventually(async () => (await client.exists(`lock:{${name}}`)) === 1);
      client.disconnect();
      setClock(clock, LEASE / 1_000 + 1);
    }
  }

  /** A row that remembers the highest fencing token, and refuses a lower one. */
  class FencedRow {
    private highest = 0;

    write(fencingToken: number): boolean {
      if (fencingToken < this.highest) return false;
      this.highest = fencingToken;
      return true;
    }
  }

  it.each([
    ['one node', [2]],
    ['two nodes', [0, 4]],
  ])('a clock that steps beyond the lease at %s lets nobody else in', async (_, indexes) => {
    const lock = await holder.acquire('few', { ttl: LEASE, renew: false });
    await stepBeyond(indexes, 'few');
    expect(await other.tryAcquire('few')).toBeNull();
    expect(lock.held).toBe(true);
    // The nodes that forgot the lock have it again.
    await lock.extend();
    expect(await other.tryAcquire('few')).toBeNull();
    await lock.release();
    const next = await other.acquire('few', { ttl: LEASE });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    await next.release();
  });

  it('clocks that step at a majority let another holder in, and the fenced resource refuses the first one', async () => {
    const row = new FencedRow();
    const first = await holder.acquire('most', { ttl: LEASE, renew: false });
    expect(row.write(first.fencingToken)).toBe(true);
    await stepBeyond([0, 1, 2], 'most');
    const second = await other.acquire('most', { ttl: LEASE, wait: 10_000 });
    expect(first.held).toBe(true);
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken);
    expect(row.write(second.fencingToken)).toBe(true);
    expect(row.write(first.fencingToken)).toBe(false);
    await expect(first.extend()).rejects.toBeInstanceOf(LockLostError);
    expect(first.signal.aborted).toBe(true);
    await second.release();
  });
});

/** Machines whose clocks differ run jobs that are over before the next one looks (docs/guide/scheduled-jobs.md). */

/** Seconds. */
const CLOCKS_AHEAD = [-2, 0, 2];
/** Seconds. */
const PERIOD = 6;
/** Above the difference of the clocks and the lateness of timers, below the period. */
const AT_LEAST_FOR = 5_000;
const TICKS = 2;
const JOBS = 100;

/** Times are ms of the clock that all machines share. */
interface Look {
  readonly machine: number;
  readonly tick: number;
  readonly from: number;
  readonly to: number;
}

interface Run {
  readonly tick: number;
  readonly name: string;
  readonly at: number;
}

/** What a machine printed behind `word`. */
function printed<T>({ output }: Child, word: 'looked' | 'ran'): T[] {
  const lines = output.split('\n').slice(0, -1);
  return lines.filter((line) => line.startsWith(`${word} `)).map((line) => JSON.parse(line.slice(word.length)) as T);
}

/** Tells whether the timers of all machines were late by less than the lease allows for, at this tick and before it. */
function inTime(tick: number, looks: readonly Look[], runs: readonly Run[]): boolean {
  const ofTick = looks.filter((look) => look.tick === tick);
  if (new Set(ofTick.map(({ machine }) => machine)).size < CLOCKS_AHEAD.length) return false;
  const [first, last] = [Math.min(...ofTick.map(({ from }) => from)), Math.max(...ofTick.map(({ from }) => from))];
  const runBefore = Math.max(0, ...runs.filter((run) => run.tick < tick).map(({ at }) => at));
  return Math.max(...ofTick.map(({ to }) => to)) < first + AT_LEAST_FOR && runBefore + AT_LEAST_FOR < last;
}

it('runs each job once for each tick', async () => {
  const server = await startRedisServer();
  const machines = CLOCKS_AHEAD.map((seconds) =>
    Child.start('scheduled-job.mjs', [server.port, PERIOD, AT_LEAST_FOR, JOBS].map(String), clockAhead(seconds)),
  );
  try {
    for (const machine of machines) await machine.says('ready');
    const runs = () => machines.flatMap((machine) => printed<Run>(machine, 'ran'));
    const ticks = () => {
      const looks = machines.flatMap((machine, index) =>
        printed<Omit<Look, 'machine'>>(machine, 'looked').map((look) => ({ ...look, machine: index })),
      );
      return [...new Set(looks.map(({ tick }) => tick))].filter((tick) => inTime(tick, looks, runs()));
    };
    await eventually(() => ticks().length >= TICKS, { within: 180_000, every: 100 });
    for (const tick of ticks()) {
      const names = runs().flatMap((run) => (run.tick === tick ? [run.name] : []));
      expect(names).toHaveLength(JOBS);
      expect(new Set(names).size).toBe(JOBS);
    }
  } finally {
    await Promise.all(machines.map((machine) => machine.kill()));
    await server.stop();
  }
}, 300_000);

describe('a clock of Redis that steps back while a load is under way', () => {
  let directory: string;
  let clock: string;
  let server: RedisServer;
  let instances: CacheInstance[];

  beforeAll(async () => {
    directory = temporaryDirectory();
    clock = join(directory, 'clock');
    server = await startRedisServer({ env: clockByFile(clock) });
  });
  beforeEach(async () => {
    setClock(clock, 0);
    instances = await openCaches(2, server.port);
  });
  afterEach(() => closeCaches(instances));
  afterAll(async () => {
    await server.stop();
    removeDirectory(directory);
  });

  type Load = (
    cache: CacheService,
    key: string,
    loader: (setTags: (tags: string[]) => void) => Promise<string>,
  ) => unknown;
  const loads: [string, Load][] = [
    ['getOrSet', (cache, key, loader) => cache.getOrSet(key, ({ setTags }) => loader(setTags))],
    [
      'getOrSetMany',
      (cache, key, loader) => cache.getOrSetMany([key], async (_keys, { setTags }) => [await loader(setTags)]),
    ],
  ];

  it.each(loads)('%s: what was loaded before deleteByTag is not stored', async (what, load) => {
    const [here, there] = instances.map(({ cache }) => cache) as [CacheService, CacheService];
    const [key, tag] = [`key:${what}`, `tag:${what}`];
    for (const softly of [false, true]) {
      setClock(clock, 0);
      await here.invalidate(key);
      let row = 'old';
      await load(here, key, async (setTags) => {
        const read = row;
        setClock(clock, -3_600);
        row = 'new';
        if (softly) await there.expireByTag(tag);
        else await there.deleteByTag(tag);
        setTags([tag]);
        return read;
      });
      expect(await there.getOrSet(key, async () => row)).toBe('new');
      // What is loaded after it is stored, though the clock is behind.
      await here.invalidate(key);
      await load(here, key, async (setTags) => {
        setTags([tag]);
        return row;
      });
      expect(await there.get(key)).toBe('new');
    }
  });
});
