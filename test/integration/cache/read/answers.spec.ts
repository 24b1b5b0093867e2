import type { CacheOptions, ReadOptions } from 'nest-redis-lock';
import type { CacheStore, Pending } from 'nest-redis-lock/backend';
import { ReadReport, withReadReport } from '../../../../lib/cache/read/read-report.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { scriptedCache, type ScriptedCache } from '../../../support/scripted-cache.js';

/** A cache whose commits reach the store when the gate opens; notes the calls that reach the store. */
function heldCache(options: CacheOptions = {}): ScriptedCache & { readonly gate: Gate; readonly calls: string[] } {
  const scripted = scriptedCache({ commandTimeout: '20s', ...options });
  const { store } = scripted;
  const [gate, calls] = [new Gate(), [] as string[]];
  const { commit, read, set, invalidate, take, increment, expire, ttl, inspect, deleteMatching } = bound(store);
  Object.assign(store, {
    commit: (request) => {
      calls.push('commit');
      return gate.opened.then(async () => {
        const stored = await promised(commit(request));
        calls.push('committed');
        return stored;
      });
    },
    read: (key) => noted('read', read(key)),
    set: (request) => noted('set', set(request)),
    invalidate: (request) => noted('invalidate', invalidate(request)),
    take: (key) => noted('take', take(key)),
    increment: (request) => noted('increment', increment(request)),
    expire: (request) => noted('expire', expire(request)),
    ttl: (key) => noted('ttl', ttl(key)),
    inspect: (key) => noted('inspect', inspect(key)),
    deleteMatching: (request) => noted('deleteMatching', deleteMatching(request)),
  } satisfies Partial<CacheStore>);
  function noted<T>(name: string, answer: T): T {
    calls.push(name);
    return answer;
  }
  return { ...scripted, gate, calls, [Symbol.dispose]: () => scripted[Symbol.dispose]() };
}

function promised<T>(answer: Pending<T>): Promise<T> {
  return new Promise((resolve, reject) => void answer.then(resolve, reject));
}

function bound<T extends object>(store: T): T {
  return new Proxy(store, {
    get: (target, name) => {
      const method: unknown = Reflect.get(target, name);
      return typeof method === 'function' ? (method.bind(target) as unknown) : method;
    },
  });
}

const WAITING: [string, ReadOptions][] = [
  ["with consistency: 'strong'", { consistency: 'strong' }],
  ["with onRedisError: 'throw'", { onRedisError: 'throw' }],
];

/** Lets everything run that does not wait for the gate. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

describe('a read that has loaded', () => {
  it('answers while its value is being stored', async () => {
    using held = heldCache();
    expect(await held.cache.getOrSet('k', () => 'loaded')).toBe('loaded');
    expect(held.calls).toEqual(['read', 'commit']);
    held.gate.open();
    expect(await held.cache.get('k')).toBe('loaded');
  });

  it('answers all who share it', async () => {
    using held = heldCache();
    await settle();
    const reads = [1, 2, 3].map(() => held.cache.getOrSet('k', () => ({})));
    const [first, ...others] = await Promise.all(reads);
    for (const each of others) expect(each).toBe(first);
    held.gate.open();
  });

  it.each(WAITING)('waits until its value is stored %s', async (_, options) => {
    using held = heldCache();
    let answered = false;
    const reading = held.cache
      .getOrSet('k', () => 'loaded', options)
      .then((value) => {
        answered = true;
        return value;
      });
    await settle();
    expect(held.calls).toEqual(['read', 'commit']);
    expect(answered).toBe(false);
    held.gate.open();
    expect(await reading).toBe('loaded');
    expect(held.calls.at(-1)).toBe('committed');
  });

  it('rejects where the store fails then, with onRedisError: throw', async () => {
    using held = heldCache();
    held.store.commit = () => Promise.reject(new Error('no store'));
    await expect(held.cache.getOrSet('k', () => 'loaded', { onRedisError: 'throw' })).rejects.toThrow(/no store/);
    expect(await held.cache.getOrSet('k', () => 'loaded')).toBe('loaded');
  });

  it('waits for the deletion of the value that it does not want to be stored', async () => {
    using held = heldCache();
    const [gate, release] = [new Gate(), held.store.release.bind(held.store)];
    held.store.release = (request) => gate.opened.then(() => promised(release(request)));
    let answered = false;
    const reading = held.cache.getOrSet('k', ({ skip }) => skip()).then(() => (answered = true));
    await settle();
    expect(answered).toBe(false);
    gate.open();
    await reading;
  });

  it('waits where it is one of more than 512, which are stored part by part', async () => {
    using held = heldCache();
    const load = async (keys: readonly string[]) => keys;
    const keysOf = (count: number) => Array.from({ length: count }, (_, index) => `${count}:${index}`);
    expect(await held.cache.getOrSetMany(keysOf(512), load)).toHaveLength(512);
    let answered = false;
    const reading = held.cache.getOrSetMany(keysOf(513), load).then(() => (answered = true));
    await eventually(() => held.calls.filter((call) => call === 'commit').length === 512 + 513);
    await settle();
    expect(answered).toBe(false);
    held.gate.open();
    await reading;
  });

  it('does not change what is stored when its caller changes the value', async () => {
    for (const options of [{}, { compression: { threshold: 1 } }]) {
      using held = heldCache(options);
      const found = await held.cache.getOrSet('k', () => ({ list: [1] }));
      found.list.push(2);
      held.gate.open();
      expect(await held.cache.get('k')).toEqual({ list: [1] });
    }
  });
});

describe('while a value is being stored', () => {
  const operations: [string, string, (held: ScriptedCache) => Promise<unknown>][] = [
    ['get', 'read', ({ cache }) => cache.get('k')],
    ['mget', 'read', ({ cache }) => cache.mget(['other', 'k'])],
    ['has', 'read', ({ cache }) => cache.has('k')],
    ['getOrSet', 'read', ({ cache }) => cache.getOrSet('k', () => 'again')],
    ['getOrSet, strong', 'read', ({ cache }) => cache.getOrSet('k', () => 'again', { consistency: 'strong' })],
    ['ttl', 'ttl', ({ cache }) => cache.ttl('k')],
    ['inspect', 'inspect', ({ cache }) => cache.inspect('k')],
    ['set', 'set', ({ cache }) => cache.set('k', 'set')],
    ['setIfAbsent', 'set', ({ cache }) => cache.setIfAbsent('k', 'set')],
    ['incr', 'increment', ({ cache }) => cache.incr('k', { ttl: '1m' }).catch(() => {})],
    ['expire', 'expire', ({ cache }) => cache.expire('k', '1m')],
    ['getDel', 'take', ({ cache }) => cache.getDel('k')],
    ['invalidate', 'invalidate', ({ cache }) => cache.invalidate('k')],
    ['mutate', 'invalidate', ({ cache }) => cache.mutate('k', async () => {})],
    ['deleteByPrefix', 'deleteMatching', ({ cache }) => cache.deleteByPrefix('k')],
  ];

  it.each(operations)('%s of its key comes after it', async (_, call, operation) => {
    using held = heldCache();
    await held.cache.getOrSet('k', () => 'loaded');
    const after = operation(held);
    await settle();
    const own = (calls: readonly string[]) => calls.slice(calls.indexOf('commit') + 1);
    // The read of the other key of mget.
    expect(own(held.calls).filter((each) => each !== 'read' || call !== 'read')).toEqual([]);
    held.gate.open();
    await after;
    expect(own(held.calls)).toContain('committed');
    expect(held.calls.lastIndexOf(call)).toBeGreaterThan(held.calls.indexOf('committed'));
  });

  it('a change of its key waits for the changes before it, too', async () => {
    using held = heldCache();
    const order: string[] = [];
    const [slow, invalidate] = [new Gate(), held.store.invalidate.bind(held.store)];
    const loading = new Gate();
    const reading = held.cache.getOrSet('k', () => loading.opened.then(() => 'loaded'));
    await settle();
    held.store.invalidate = (request) => {
      order.push('sent');
      return slow.opened.then(() => promised(invalidate(request))).finally(() => order.push('answered'));
    };
    const first = held.cache.invalidate('k').then(() => order.push('first'));
    await settle();
    loading.open();
    await reading;
    held.gate.open();
    await settle();
    const second = held.cache.set('k', 'set').then(() => order.push('set'));
    await settle();
    expect(order).toEqual(['sent']);
    slow.open();
    await Promise.all([first, second]);
    expect(order).toEqual(['sent', 'answered', 'first', 'set']);
    expect(await held.cache.get('k')).toBe('set');
  });

  it('other keys do not wait', async () => {
    using held = heldCache();
    await held.cache.getOrSet('k', () => 'loaded');
    await held.cache.set('other', 1);
    expect(await held.cache.get('other')).toBe(1);
    held.gate.open();
  });

  it('the first level serves it, until the store has refused it', async () => {
    using held = heldCache({ l1: { ttl: '1m' } });
    await settle();
    await held.cache.getOrSet('k', () => 'loaded');
    expect(await held.cache.getOrSet('k', () => 'again')).toBe('loaded');
    // What another process does, whose message is on the way.
    const release = held.store.release.bind(held.store);
    held.store.commit = async (request) => {
      await promised(release(request));
      return false;
    };
    expect(await held.cache.getOrSet('refused', () => 'loaded')).toBe('loaded');
    await settle();
    expect(await held.cache.getOrSet('refused', () => 'again')).toBe('again');
    expect(held.cache.stats().refusedCommits).toBe(1);
    held.gate.open();
  });

  it('an invalidation drops it from the first level at once', async () => {
    using held = heldCache({ l1: { ttl: '1m' } });
    await settle();
    await held.cache.getOrSet('k', () => 'loaded');
    const invalidated = held.cache.invalidate('k');
    const reading = held.cache.getOrSet('k', () => 'again');
    held.gate.open();
    await invalidated;
    expect(await reading).toBe('again');
    expect(await held.cache.getOrSet('k', () => 'third')).toBe('again');
  });

  it('a shutdown waits for it', async () => {
    const held = heldCache();
    await held.cache.getOrSet('k', () => 'loaded');
    let stopped = false;
    const stopping = held.engine.stop().then(() => (stopped = true));
    await settle();
    expect(stopped).toBe(false);
    held.gate.open();
    await stopping;
    expect(held.calls).toEqual(['read', 'commit', 'committed']);
  });

  it('a report of its callers waits for it, and tells whether it was stored', async () => {
    using held = heldCache();
    const reports = [new ReadReport(), new ReadReport()] as const;
    let answered = 0;
    const readings = reports.map((report) =>
      withReadReport(report, () => held.cache.getOrSet('k', () => 'loaded', { ttl: '1m', jitter: 0 })).then(
        () => (answered += 1),
      ),
    );
    await settle();
    expect(answered).toBe(0);
    held.gate.open();
    await Promise.all(readings);
    for (const { remaining } of reports) expect(remaining).toBeGreaterThan(0);
    held.store.commit = () => Promise.resolve(false);
    const refused = new ReadReport();
    await withReadReport(refused, () => held.cache.getOrSet('refused', () => 'loaded'));
    expect(refused).toMatchObject({ outcome: 'miss', remaining: 0 });
  });

  it('a failure of the store gives the lease back, and reaches nobody', async () => {
    using held = heldCache({ breaker: { errors: 100 } });
    held.store.commit = () => Promise.reject(new Error('no store'));
    expect(await held.cache.getOrSet('k', () => 'loaded')).toBe('loaded');
    await settle();
    expect(held.cache.stats()).toMatchObject({ redisErrors: 1, refusedCommits: 0 });
    expect((await held.store.inspect('k')).lease).toBeNull();
    expect(await held.cache.getOrSet('k', () => 'again')).toBe('again');
  });
});
