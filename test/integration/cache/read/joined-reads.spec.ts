import { Redis } from 'ioredis';
import type { CacheService, LoaderContext, ReadOptions } from 'nest-redis-lock';
import type { CacheEngine } from '../../../../lib/cache/cache-engine.js';
import { type CacheInstance, closeCaches, openCaches } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { scriptedCache } from '../../../support/scripted-cache.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

let server: RedisServer;
let redis: Redis;
let instances: CacheInstance[];
let cache: CacheService;
let other: CacheService;

beforeAll(async () => {
  server = await startRedisServer();
  redis = new Redis(server.url);
  instances = await openCaches(2, server.port, { l1: { ttl: '1m' }, commandTimeout: '5s' });
  [cache, other] = instances.map((instance) => instance.cache) as [CacheService, CacheService];
});
afterAll(async () => {
  await closeCaches(instances);
  redis.disconnect();
  await server.stop();
});
beforeEach(() => redis.flushall());

function engine(): CacheEngine {
  return (instances[0] as CacheInstance).engine;
}

/** Deletes by tag in `by`, until `cache` knows of it. */
async function deleteByTag(by: CacheService, tag: string): Promise<void> {
  const { invalidatedTags } = engine();
  const before = invalidatedTags.count;
  await by.deleteByTag(tag);
  await eventually(() => invalidatedTags.count > before, { every: 1 });
}

/** Loads of one key, each of which is held until the gate opens, and returns the row as it was when it began. */
class HeldLoads {
  readonly gate = new Gate();
  count = 0;
  row = 'old';

  constructor(private readonly atEnd: (context: LoaderContext) => void = () => {}) {}

  readonly load = async (context: LoaderContext): Promise<string> => {
    this.count += 1;
    const { row } = this;
    await this.gate.opened;
    this.atEnd(context);
    return row;
  };

  async begin(key: string, options: ReadOptions = {}): Promise<{ first: Promise<string> }> {
    const first = cache.getOrSet(key, this.load, options);
    await eventually(() => this.count === 1);
    return { first };
  }
}

const modes: Record<string, ReadOptions> = {
  'with the lock': {},
  'without the lock': { lock: false },
  'with tags of its own': { tags: ['own'] },
};

describe.each(['own', 'other'])('a read that is under way while a tag is invalidated by the %s application', (by) => {
  const invalidator = () => (by === 'own' ? cache : other);

  it.each(Object.keys(modes))('is still joined if its value does not have the tag: %s', async (mode) => {
    const key = `unrelated:${by}:${mode}`;
    const options = modes[mode]!;
    const loads = new HeldLoads();
    const { waits, sharedReads } = cache.stats();
    const { first } = await loads.begin(key, options);
    const calls = [first];
    for (let i = 0; i < 30; i++) {
      await deleteByTag(invalidator(), `unrelated:${i}`);
      calls.push(cache.getOrSet(key, loads.load, options));
    }
    loads.gate.open();
    expect(new Set(await Promise.all(calls))).toEqual(new Set(['old']));
    expect(loads.count).toBe(1);
    expect(cache.stats()).toMatchObject({ waits, sharedReads: sharedReads + 30 });
    expect(engine().firstLevel?.get(key)?.value).toBe('old');
  });

  it('answers nobody who came later where its loader names the tag, and they share one load more', async () => {
    const key = `named:${by}`;
    const loads = new HeldLoads(({ setTags }) => setTags(['late']));
    const { first } = await loads.begin(key);
    const before = cache.getOrSet(key, loads.load);
    loads.row = 'new';
    await deleteByTag(invalidator(), 'late');
    const after = [1, 2, 3].map(() => cache.getOrSet(key, loads.load));
    loads.gate.open();
    expect(await Promise.all([first, before])).toEqual(['old', 'old']);
    expect(await Promise.all(after)).toEqual(['new', 'new', 'new']);
    expect(loads.count).toBe(2);
    expect(await cache.getOrSet(key, () => 'none')).toBe('new');
  });

  it('answers nobody who came later where nothing may be stored', async () => {
    const key = `barred:${by}`;
    const loads = new HeldLoads(({ setTags }) => setTags(['late']));
    await other.invalidate(key, { barrier: '1m' });
    // Its message was heard before that of the tag.
    await deleteByTag(other, 'fence');
    const { first } = await loads.begin(key);
    loads.row = 'new';
    await deleteByTag(invalidator(), 'late');
    const after = cache.getOrSet(key, loads.load);
    loads.gate.open();
    expect(await Promise.all([first, after])).toEqual(['old', 'new']);
  });

  it.each(['of the read', 'of the caller'])('is not joined where the options %s name the tag', async (whose) => {
    const key = `options:${by}:${whose}`;
    const loads = new HeldLoads();
    const tagged = { tags: ['told'], lock: false };
    const { first } = await loads.begin(key, whose === 'of the read' ? tagged : { lock: false });
    loads.row = 'new';
    await deleteByTag(invalidator(), 'told');
    const after = cache.getOrSet(key, loads.load, whose === 'of the read' ? { lock: false } : tagged);
    await eventually(() => loads.count === 2);
    loads.gate.open();
    expect(await Promise.all([first, after])).toEqual(['old', 'new']);
  });

  it('passes its error on only to those who came before', async () => {
    const key = `error:${by}`;
    let failing = true;
    const loads = new HeldLoads(() => {
      if (!failing) return;
      failing = false;
      throw new Error('no such row');
    });
    const { first } = await loads.begin(key);
    loads.row = 'new';
    await deleteByTag(invalidator(), 'any');
    const after = [1, 2].map(() => cache.getOrSet(key, loads.load));
    loads.gate.open();
    await expect(first).rejects.toThrow('no such row');
    expect(await Promise.all(after)).toEqual(['new', 'new']);
    expect(loads.count).toBe(2);
  });

  it('neither answers who came later with a value that it found with the tag, nor keeps it', async () => {
    const key = `found:${by}`;
    const [reviving, held] = [new Gate(), new Gate()];
    await other.getOrSet(key, ({ setTags }) => (setTags(['late']), 'old'));
    const revive = async (value: unknown) => {
      reviving.open();
      await held.opened;
      return value;
    };
    const first = cache.getOrSet(key, () => 'none', { revive });
    await reviving.opened;
    await deleteByTag(invalidator(), 'late');
    const after = cache.getOrSet(key, ({ skip }) => (skip(), 'new'), { revive });
    held.open();
    expect(await Promise.all([first, after])).toEqual(['old', 'new']);
    expect(engine().firstLevel?.get(key)).toBeUndefined();
  });

  it('is not joined by later callers once more tags were invalidated than are remembered', async () => {
    const key = `many:${by}`;
    const loads = new HeldLoads(({ setTags }) => setTags(['late']));
    const { first } = await loads.begin(key);
    loads.row = 'new';
    await deleteByTag(invalidator(), 'late');
    const { invalidatedTags } = engine();
    const before = invalidatedTags.count;
    await invalidator().deleteByTag(Array.from({ length: 1_100 }, (_, index) => `tag:${index}`));
    await eventually(() => invalidatedTags.count >= before + 1_100);
    const after = cache.getOrSet(key, loads.load);
    loads.gate.open();
    expect(await Promise.all([first, after])).toEqual(['old', 'new']);
  });
});

it('many keys whose reads turn out to be outdated are loaded again with one call', async () => {
  const keys = Array.from({ length: 20 }, (_, index) => `batch:${index}`);
  const gate = new Gate();
  const calls: (readonly string[])[] = [];
  let row = 'old';
  const load = async (missing: readonly string[], { setTags }: LoaderContext) => {
    calls.push(missing);
    const found = row;
    await gate.opened;
    setTags(['late']);
    return missing.map(() => found);
  };
  const first = cache.getOrSetMany(keys, load);
  await eventually(() => calls.length === 1);
  row = 'new';
  await deleteByTag(other, 'late');
  const after = cache.getOrSetMany(keys, load);
  gate.open();
  expect(new Set(await first)).toEqual(new Set(['old']));
  expect(new Set(await after)).toEqual(new Set(['new']));
  expect(calls).toEqual([keys, keys]);
});

it.each(['eventual', 'strong'] as const)(
  'many keys whose reads end one after the other are loaded again with one call (consistency: %s)',
  async (consistency) => {
    using scripted = scriptedCache();
    const { cache: batches, store } = scripted;
    await eventually(() => scripted.engine.busConnected);
    const keys = ['a', 'b', 'c'];
    const [gate, ahead] = [new Gate(), new Gate()];
    const calls: (readonly string[])[] = [];
    let row = 'old';
    const load = async (missing: readonly string[], { setTags }: LoaderContext) => {
      calls.push(missing);
      const found = row;
      await gate.opened;
      setTags(['late']);
      return missing.map(() => found);
    };
    const first = batches.getOrSetMany(keys, load);
    await eventually(() => calls.length === 1);
    row = 'new';
    await batches.deleteByTag('late');
    const after = batches.getOrSetMany(keys, load, { consistency });
    // The read of the first key ends, and it is about to be loaded again, before the reads of the others end.
    const { lease, lastTagInvalidation } = store;
    store.lease = async (request) => {
      const answer = await lease.call(store, request);
      setImmediate(() => ahead.open());
      return answer;
    };
    let ends = 0;
    store.lastTagInvalidation = async () => {
      ends += 1;
      if (ends > 1) await ahead.opened;
      return lastTagInvalidation.call(store);
    };
    gate.open();
    expect(await first).toEqual(['old', 'old', 'old']);
    expect(await after).toEqual(['new', 'new', 'new']);
    expect(calls).toEqual([keys, keys]);
  },
);

it('loaders that wait for each other across an invalidation end', async () => {
  const [gate, started] = [new Gate(), new Gate()];
  const inner = async ({ setTags }: LoaderContext) => {
    setTags(['late']);
    started.open();
    await gate.opened;
    return cache.getOrSet('outer', () => 'outer alone');
  };
  const first = cache.getOrSet('inner', inner);
  await started.opened;
  await deleteByTag(other, 'late');
  const outer = cache.getOrSet('outer', () => cache.getOrSet('inner', inner));
  gate.open();
  expect(await Promise.all([first, outer])).toEqual(['outer alone', 'outer alone']);
});
