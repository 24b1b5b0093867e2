import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import type { CacheOperations } from 'nest-redis-lock';
import { eventually } from '../support/eventually.js';
import { scriptedCache, type ScriptedCache } from '../support/scripted-cache.js';
import { cacheStores, type OpenCacheStore, startCacheStores } from './each-cache-store.js';

/** More than usual, with `CACHE_RUNS`. */
const RUNS = Number(process.env['CACHE_RUNS'] ?? 30);
const LONG = { ttl: '1h' } as const;

/** What is there, and the next value to store. */
class Model {
  readonly values = new Map<string, unknown>();
  readonly tagged = new Set<string>();
  serial = 0;

  store(key: string, value: unknown, tagged = false): void {
    this.values.set(key, value);
    if (tagged) this.tagged.add(key);
    else this.tagged.delete(key);
  }
}

type Call = (cache: CacheOperations, model: Model, key: string, keys: readonly string[]) => [Promise<unknown>, unknown];

/**
 * Each calls, and says what it must answer. A name that is only set with a tag has no other reads, for its bytes stay
 * where they are.
 */
const calls: Record<string, Call> = {
  set: (cache, model, key) => {
    const value = (model.serial += 1);
    model.store(key, value);
    return [cache.set(key, value, LONG), undefined];
  },
  'set of an object': (cache, model, key) => {
    const value = { serial: (model.serial += 1) };
    model.store(key, { ...value });
    const setting = cache.set(key, value, LONG);
    value.serial = -1;
    return [setting, undefined];
  },
  'set with a tag': (cache, model, key) => {
    const value = (model.serial += 1);
    model.store(`tagged ${key}`, value, true);
    return [cache.set(`tagged ${key}`, value, { ...LONG, tags: [`tag ${key}`] }), undefined];
  },
  deleteByTag: (cache, model, key) => {
    model.values.delete(`tagged ${key}`);
    return [cache.deleteByTag(`tag ${key}`), undefined];
  },
  mset: (cache, model, _, keys) => {
    const value = (model.serial += 1);
    for (const key of keys) model.store(key, value);
    return [cache.mset(Object.fromEntries(keys.map((key) => [key, value])), LONG), undefined];
  },
  setIfAbsent: (cache, model, key) => {
    const value = (model.serial += 1);
    const absent = !model.values.has(key);
    if (absent) model.store(key, value);
    return [cache.setIfAbsent(key, value, LONG), absent];
  },
  incr: (cache, model, key) => {
    const counter = `counter ${key}`;
    const sum = ((model.values.get(counter) as number | undefined) ?? 0) + 1;
    model.store(counter, sum);
    return [cache.incr(counter, 1, LONG), sum];
  },
  'set of a counter': (cache, model, key) => {
    const value = (model.serial += 1);
    model.store(`counter ${key}`, value);
    return [cache.set(`counter ${key}`, value, LONG), undefined];
  },
  'del of a counter': (cache, model, key) => {
    const found = model.values.delete(`counter ${key}`);
    return [cache.del(`counter ${key}`), found ? 1 : 0];
  },
  get: (cache, model, key) => [cache.get(key), model.values.get(key)],
  mget: (cache, model, _, keys) => [cache.mget(keys), keys.map((key) => model.values.get(key))],
  getOrSet: (cache, model, key) =>
    model.values.has(key) ? [cache.getOrSet(key, () => 'loaded'), model.values.get(key)] : [cache.get(key), undefined],
  has: (cache, model, key) => [cache.has(key), model.values.has(key)],
  expire: (cache, model, key) => [cache.expire(key, '2h'), model.values.has(key)],
  ttl: (cache, model, key) => [cache.ttl(key).then((left) => left !== null), model.values.has(key)],
  del: (cache, model, key) => {
    const found = model.values.delete(key);
    return [cache.del(key), found ? 1 : 0];
  },
  invalidate: (cache, model, _, keys) => {
    for (const key of keys) model.values.delete(key);
    return [cache.invalidate(keys), undefined];
  },
};

const piped = ['set', 'incr', 'get', 'has', 'expire', 'ttl', 'del'] as const;

const ordered = startCacheStores();

describe.each(cacheStores)('on $name', (kind) => {
  let scripted: ScriptedCache;
  let histories = 0;

  beforeAll(async () => {
    scripted = scriptedCache({ commandTimeout: '30s' }, ordered(kind.name).store);
  });
  afterAll(() => scripted.engine.stop());

  const namesOf = (count: number) => {
    histories += 1;
    return Array.from({ length: count }, (_, index) => `${histories}:${index}`);
  };

  it('operations that nobody waits for take effect in the order of their calls', async () => {
    const step = fc.tuple(fc.constantFrom(...Object.keys(calls), 'wait'), fc.nat(1));
    const history = fc.asyncProperty(fc.array(step, { minLength: 2, maxLength: 40, size: 'max' }), async (steps) => {
      const keys = namesOf(2);
      const model = new Model();
      const answers: [string, Promise<unknown>][] = [];
      const expected: [string, unknown][] = [];
      const settle = async () => {
        const settled = answers.splice(0).map(async ([name, answer]) => [name, await answer]);
        expect(await Promise.all(settled)).toEqual(expected.splice(0));
      };
      for (const [name, key] of steps) {
        const call = calls[name];
        if (!call) {
          await settle();
          continue;
        }
        const [answer, value] = call(scripted.cache, model, keys[key]!, keys);
        answers.push([name, answer]);
        expected.push([name, value]);
      }
      await settle();
      const all = keys.flatMap((key) => [key, `tagged ${key}`, `counter ${key}`]);
      expect(await scripted.cache.mget(all)).toEqual(all.map((key) => model.values.get(key)));
    });
    await fc.assert(history, { numRuns: RUNS, endOnFailure: true });
  }, 60_000);

  it('so do those of a pipeline', async () => {
    const step = fc.tuple(fc.constantFrom(...piped), fc.nat(1));
    const history = fc.asyncProperty(fc.array(step, { minLength: 2, maxLength: 20, size: 'max' }), async (steps) => {
      const keys = namesOf(2);
      const values = new Map<string, number>();
      const pipeline = scripted.cache.pipeline();
      const expected = steps.map(([name, index], serial): unknown => {
        const key = keys[index]!;
        const value = values.get(key);
        if (name === 'set') pipeline.set(key, serial, LONG);
        else if (name === 'incr') pipeline.incr(key, 1, LONG);
        else if (name === 'expire') pipeline.expire(key, '2h');
        else pipeline[name](key);
        if (name === 'set') values.set(key, serial);
        if (name === 'incr') values.set(key, (value ?? 0) + 1);
        if (name === 'del') values.delete(key);
        if (name === 'set') return undefined;
        if (name === 'del') return value === undefined ? 0 : 1;
        if (name === 'get') return value;
        if (name === 'incr') return values.get(key);
        if (name === 'ttl') return value === undefined ? null : expect.any(Number);
        return value !== undefined;
      });
      expect(await pipeline.exec()).toEqual(expected);
      expect(await scripted.cache.mget(keys)).toEqual(keys.map((key) => values.get(key)));
    });
    await fc.assert(history, { numRuns: RUNS, endOnFailure: true });
  }, 60_000);

  it('so do changes of sets', async () => {
    const { sets, expiringSet } = scripted.cache;
    const [key] = namesOf(1) as [string];
    const plain = [
      sets.add(key, ['a', 'b'], LONG),
      sets.remove(key, 'a'),
      sets.has(key, 'a'),
      sets.add(key, 'a', LONG),
    ];
    expect(await Promise.all([...plain, sets.members(key).then((all) => all.toSorted())])).toEqual([
      2,
      1,
      false,
      1,
      ['a', 'b'],
    ]);
    const expiring = [expiringSet.add(key, ['a', 'b'], '1h'), expiringSet.remove(key, 'a'), expiringSet.size(key)];
    expect(await Promise.all([...expiring, expiringSet.has(key, 'a'), expiringSet.add(key, 'a', '1h')])).toEqual([
      2,
      1,
      1,
      false,
      1,
    ]);
  });

  it('what is called after more keys than go at once comes after all of them', async () => {
    const keys = namesOf(1_200);
    const last = keys.at(-1) as string;
    const { cache } = scripted;
    const all = Object.fromEntries(keys.map((key) => [key, 1]));
    const unawaited = [
      cache.mset(all, LONG),
      cache.get(last),
      cache.mget(keys),
      cache.del(keys),
      cache.set(last, 2, LONG),
    ];
    expect((await Promise.all(unawaited)).slice(1, 3)).toEqual([1, keys.map(() => 1)]);
    expect(await cache.mget(keys)).toEqual(keys.map((key) => (key === last ? 2 : undefined)));
  });

  it('a read of more keys than go at once, and a write with a tag called after it, do not wait for each other', async () => {
    const { cache } = scripted;
    const keys = namesOf(600);
    const last = keys.at(-1) as string;
    const tags = ['of all'];
    await cache.mset(Object.fromEntries(keys.map((key) => [key, 'old'])), { ...LONG, tags });
    const [values] = await Promise.all([cache.mget(keys), cache.set(last, 'new', { ...LONG, tags })]);
    expect(values).toEqual(keys.map(() => 'old'));
    expect(await cache.get(last)).toBe('new');
  });

  it('a deletion by prefix or pattern takes what was stored before its call, and leaves what is stored after it', async () => {
    const { cache } = scripted;
    const [prefix, other] = namesOf(2) as [string, string];
    const keys = Array.from({ length: 50 }, (_, index) => `${prefix}:${index}`);
    for (const sweep of [() => cache.deleteByPrefix(`${prefix}:`), () => cache.deleteByPattern(`${prefix}:*`)]) {
      void cache.mset(Object.fromEntries([...keys, other].map((key) => [key, 'before'])), LONG);
      const sweeping = sweep();
      const [first = ''] = keys;
      await Promise.all([cache.set(first, 'after', LONG), sweeping]);
      expect(await cache.mget([...keys, other])).toEqual(['after', ...keys.slice(1).map(() => undefined), 'before']);
      await cache.del([...keys, other]);
    }
  });

  it('a write that is made while the cache waits for its turn can use the cache', async () => {
    const { cache } = scripted;
    const [key] = namesOf(1) as [string];
    const writing = [
      cache.set(key, 'old', LONG),
      cache.mutate(key, async () => await cache.getOrSet(key, () => 'row')),
    ];
    expect((await Promise.all(writing))[1]).toBe('row');
    expect(await cache.get(key)).toBeUndefined();
    const loaded = cache.getOrSet(key, async () => {
      await cache.set(`${key} beside`, 1, LONG);
      return cache.get(`${key} beside`);
    });
    expect(await loaded).toBe(1);
  });
});

const MINUTE = 60_000;
const deleted = startCacheStores();

describe.each(cacheStores)('double deletion on $name', (kind) => {
  let opened: OpenCacheStore;
  let one: ScriptedCache;
  let another: ScriptedCache;

  beforeAll(async () => {
    opened = deleted(kind.name);
    one = scriptedCache({ commandTimeout: '5s' }, opened.store);
    // In memory, both are one store, which has one listener.
    another = opened.other === opened.store ? one : scriptedCache({ commandTimeout: '5s' }, opened.other);
    await eventually(() => one.engine.busConnected && another.engine.busConnected);
  });
  afterAll(async () => {
    await one.engine.stop();
    await another.engine.stop();
  });

  /** A prefix, and keys of it, in many slots of a Cluster. */
  const newNames = () => {
    const id = randomUUID();
    return [id, Array.from({ length: 25 }, (_, index) => `${id}:${index}`)] as const;
  };
  const store = (names: readonly string[], value: string) =>
    another.cache.mset(Object.fromEntries(names.map((name) => [name, value])), { ttl: MINUTE });
  const found = async (names: readonly string[]) =>
    (await another.cache.mget(names)).filter((each) => each !== undefined);

  it('by prefix deletes before the write, after it, and once more after the delay', async () => {
    const [id, keys] = newNames();
    await store([...keys, `other ${id}`], 'old');
    const written = await one.cache.doubleDeleteByPrefix(
      `${id}:`,
      async () => {
        expect(await found(keys)).toEqual([]);
        await store(keys, 'stored during the write');
        return 'written';
      },
      { delay: '1s', batch: 5 },
    );
    expect(written).toBe('written');
    expect(await found(keys)).toEqual([]);
    await store(keys, 'of a replica that lags');
    await eventually(async () => (await found(keys)).length === 0);
    expect(await found([`other ${id}`])).toEqual(['old']);
    await eventually(async () => (await opened.store.deletions.claim(1, MINUTE)).next === null);
  });

  it.concurrent('by key deletes that key only, whatever it begins with', async () => {
    const [id, keys] = newNames();
    const odd = [`\0p5:${id}`, `\0k${id}`, `\0${id}`];
    await store([...odd, ...keys, `${id}odd`], 'old');
    await one.cache.doubleDelete(odd, async () => {}, { delay: 500 });
    await store(odd, 'of a replica that lags');
    await eventually(async () => (await found(odd)).length === 0);
    expect(await found([...keys, `${id}odd`])).toHaveLength(26);
  });

  it.concurrent('in a namespace stays in it', async () => {
    const [id] = newNames();
    await store([`${id}:x:1`, 'x:1'], 'old');
    await one.cache.namespace(id).doubleDeleteByPrefix('x:', async () => {}, { delay: 500 });
    expect(await found([`${id}:x:1`, 'x:1'])).toEqual(['old']);
    await store([`${id}:x:1`], 'of a replica that lags');
    await eventually(async () => (await found([`${id}:x:1`])).length === 0);
    expect(await found(['x:1'])).toEqual(['old']);
  });

  it.concurrent('rejects with the error of the write, and still deletes', async () => {
    const [id, keys] = newNames();
    const failing = one.cache.doubleDeleteByPrefix(
      `${id}:`,
      async () => {
        await store(keys, 'stored during the write');
        throw new Error('refused');
      },
      { delay: 500 },
    );
    await expect(failing).rejects.toThrow('refused');
    expect(await found(keys)).toEqual([]);
    await store(keys, 'of a replica that lags');
    await eventually(async () => (await found(keys)).length === 0);
  });

  it('refuses options that it cannot take, before the write', async () => {
    let writes = 0;
    const run = (options: object) =>
      one.cache.doubleDeleteByPrefix('p', async () => (writes += 1), options as { delay: number });
    await expect(run({})).rejects.toThrow(/Option "delay" is undefined; give milliseconds \(from 1 to /);
    await expect(run({ delay: 0 })).rejects.toThrow(/Option "delay" is 0; give/);
    await expect(run({ delay: 1, batch: 0.5 })).rejects.toThrow(
      /Option "batch" is 0\.5; give a whole number from 1 on/,
    );
    await expect(run({ delay: 1, batches: 5 })).rejects.toThrow(/batches/);
    await expect(one.cache.doubleDeleteByPrefix(7 as unknown as string, async () => {}, { delay: 1 })).rejects.toThrow(
      /Option "prefix" is 7; give a string/,
    );
    expect(writes).toBe(0);
  });
});
