import { randomUUID } from 'node:crypto';
import { cacheStores, type OpenCacheStore } from '../support/cache-stores.js';
import { eventually } from '../support/eventually.js';
import { scriptedCache, type ScriptedCache } from '../support/scripted-cache.js';

const LONG = 60_000;

describe.each(cacheStores)('double deletion on $name', (kind) => {
  let opened: OpenCacheStore;
  let one: ScriptedCache;
  let another: ScriptedCache;
  let id: string;

  beforeAll(async () => {
    opened = await kind.open();
    one = scriptedCache({ commandTimeout: '5s' }, opened.store);
    // In memory, both are one store, which has one listener.
    another = opened.other === opened.store ? one : scriptedCache({ commandTimeout: '5s' }, opened.other);
    await eventually(() => one.engine.busConnected && another.engine.busConnected);
  });
  beforeEach(() => {
    id = randomUUID();
  });
  afterAll(async () => {
    await one.engine.stop();
    await another.engine.stop();
    await opened.close();
  });

  /** Keys of one prefix, in many slots of a Cluster. */
  const keys = () => Array.from({ length: 25 }, (_, index) => `${id}:${index}`);
  const store = (names: readonly string[], value: string) =>
    another.cache.mset(Object.fromEntries(names.map((name) => [name, value])), { ttl: LONG });
  const found = async (names: readonly string[]) =>
    (await another.cache.mget(names)).filter((each) => each !== undefined);

  it('by prefix deletes before the write, after it, and once more after the delay', async () => {
    await store([...keys(), `other ${id}`], 'old');
    const written = await one.cache.doubleDeleteByPrefix(
      `${id}:`,
      async () => {
        expect(await found(keys())).toEqual([]);
        await store(keys(), 'stored during the write');
        return 'written';
      },
      { delay: '1s', batch: 5 },
    );
    expect(written).toBe('written');
    expect(await found(keys())).toEqual([]);
    await store(keys(), 'of a replica that lags');
    await eventually(async () => (await found(keys())).length === 0);
    expect(await found([`other ${id}`])).toEqual(['old']);
    await eventually(async () => (await opened.store.deletions.claim(1, LONG)).next === null);
  });

  it('by key deletes that key only, whatever it begins with', async () => {
    const odd = [`\0p5:${id}`, `\0k${id}`, `\0${id}`];
    await store([...odd, ...keys(), `${id}odd`], 'old');
    await one.cache.doubleDelete(odd, async () => {}, { delay: 500 });
    await store(odd, 'of a replica that lags');
    await eventually(async () => (await found(odd)).length === 0);
    expect(await found([...keys(), `${id}odd`])).toHaveLength(26);
  });

  it('in a namespace stays in it', async () => {
    await store([`${id}:x:1`, 'x:1'], 'old');
    await one.cache.namespace(id).doubleDeleteByPrefix('x:', async () => {}, { delay: 500 });
    expect(await found([`${id}:x:1`, 'x:1'])).toEqual(['old']);
    await store([`${id}:x:1`], 'of a replica that lags');
    await eventually(async () => (await found([`${id}:x:1`])).length === 0);
    expect(await found(['x:1'])).toEqual(['old']);
  });

  it('rejects with the error of the write, and still deletes', async () => {
    const failing = one.cache.doubleDeleteByPrefix(
      `${id}:`,
      async () => {
        await store(keys(), 'stored during the write');
        throw new Error('refused');
      },
      { delay: 500 },
    );
    await expect(failing).rejects.toThrow('refused');
    expect(await found(keys())).toEqual([]);
    await store(keys(), 'of a replica that lags');
    await eventually(async () => (await found(keys())).length === 0);
  });

  it('refuses options that it cannot take, before the write', async () => {
    let writes = 0;
    const run = (options: object) =>
      one.cache.doubleDeleteByPrefix(id, async () => (writes += 1), options as { delay: number });
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
