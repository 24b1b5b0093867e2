import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '../support/eventually.js';
import { RecordingCacheListener } from '../support/recording-cache-listener.js';
import {
  ask,
  begin,
  commit,
  eachCacheStore,
  key,
  LONG,
  other,
  ours,
  raise,
  read,
  rebuild,
  set,
  statusOf,
  store,
  theirs,
  toHear,
} from './each-cache-store.js';

/** A life (ms) that no slow machine outlasts between two requests. */
const BRIEF = 1_500;

eachCacheStore(() => {
  describe('values', () => {
    it('are read by every process as they were written', async () => {
      expect(await store.read(key)).toBeNull();
      await set('ü €');
      expect(await read()).toBe('ü €');
      const bytes = Buffer.from([0, 255, 128, 10, 13]);
      await set(bytes);
      expect(await other.read(key)).toEqual(bytes);
      await set('');
      expect(await other.read(key)).toEqual(Buffer.alloc(0));
      expect(await statusOf(store)).toBe('hit');
    });

    it('are inspected without their payload', async () => {
      expect(await store.inspect(key)).toEqual({ value: null, lease: null, barrier: false });
      const long = `head ${'ü'.repeat(1_000)}\n`;
      await set(`${long}${'x'.repeat(5_000)}\nx`);
      const { value, ...rest } = await other.inspect(key);
      expect(value?.head.toString()).toBe(long);
      expect(value?.bytes).toBe(Buffer.byteLength(long) + 5_002);
      expect(value?.ttl).toBeGreaterThan(LONG / 2);
      expect(value?.ttl).toBeLessThanOrEqual(LONG);
      expect(rest).toEqual({ lease: null, barrier: false });
      for (const whole of ['', '\n', '-17', 'y'.repeat(300)]) {
        await set(whole);
        const found = await store.inspect(key);
        expect(found.value).toEqual({ head: Buffer.from(whole), bytes: whole.length, ttl: expect.any(Number) });
      }
      const counter = `${key}:endless`;
      await store.increment({ key: counter, by: 3, ttl: Infinity });
      expect((await other.inspect(counter)).value).toEqual({ head: Buffer.from('3'), bytes: 1, ttl: Infinity });
    });

    it('are inspected with the load lease and the writes of their key', async () => {
      const token = await begin({ lease: 40_000 });
      const loading = await other.inspect(key);
      expect(loading).toEqual({ value: null, lease: expect.any(Number), barrier: false });
      expect(loading.lease).toBeGreaterThan(10_000);
      expect(loading.lease).toBeLessThanOrEqual(40_000);
      await store.release({ key, token });
      expect(await other.inspect(key)).toEqual({ value: null, lease: null, barrier: false });
      await raise('long');
      await raise('short', 1);
      expect(await other.inspect(key)).toEqual({ value: null, lease: null, barrier: true });
      await store.invalidate({ key, lift: 'long' });
      await eventually(async () => !(await other.inspect(key)).barrier);
    });

    it('are read together in their order', async () => {
      const keys = Array.from({ length: 300 }, (_, index) => `${key}:${index}`);
      await Promise.all(keys.filter((_, index) => index % 3 > 0).map((each) => set(`of ${each}`, each)));
      const values = await Promise.all(keys.map((each) => store.read(each)));
      const expected = keys.map((each, index) => (index % 3 > 0 ? `of ${each}` : null));
      expect(values.map((value) => value?.toString() ?? null)).toEqual(expected);
    });

    it('do not change with the bytes that were given or read', async () => {
      const given = Buffer.from('abc');
      await set(given);
      given[0] = 0;
      const found = await store.read(key);
      expect(found?.toString()).toBe('abc');
      found?.fill(0);
      expect((await store.read(key))?.toString()).toBe('abc');
    });

    it('are distinguished by their keys, whatever characters those contain', async () => {
      const names = [
        'a}b',
        'a%7Db',
        'a%257Db',
        'a{b',
        '{t}',
        '{t}:x',
        '{}x',
        '}',
        'ü \n"%',
        '*',
        'a:b',
        '%',
        '__proto__',
      ];
      const keys = names.map((name) => (name.startsWith('{t}') ? `${name}${key}` : `${name}:${key}`));
      for (const each of keys) {
        const token = await begin({ key: each });
        expect(await statusOf(other, { key: each })).toBe('busy');
        expect(await commit(token, each, each)).toBe(true);
      }
      for (const each of keys) {
        expect(await read(each)).toBe(each);
        await other.invalidate({ key: each });
        await toHear(`invalidated ${each}`);
        expect(await read(each)).toBeNull();
      }
    });

    it.concurrent('end after their time', async () => {
      const short = randomUUID();
      await store.set({ key: short, data: 'short', ttl: BRIEF });
      expect(await read(short)).toBe('short');
      const left = await other.ttl(short);
      expect(left).toBeGreaterThan(0);
      expect(left).toBeLessThanOrEqual(BRIEF);
      await eventually(async () => (await read(short)) === null);
      expect(await store.ttl(short)).toBeNull();
      expect(await statusOf(store, { key: short })).toBe('leased');
    });

    it.concurrent('of a load end after their time', async () => {
      const short = randomUUID();
      const token = await begin({ key: short });
      await store.commit({ key: short, token, data: 'short', ttl: BRIEF });
      expect(await read(short)).toBe('short');
      await eventually(async () => (await read(short)) === null);
    });

    it('expire at another time on request, which is published to every process', async () => {
      expect(await store.expire({ key, ttl: LONG })).toBe(false);
      await store.set({ key, data: 'x', ttl: 1_000 });
      expect(await store.expire({ key, ttl: LONG })).toBe(true);
      expect(await other.ttl(key)).toBeGreaterThan(1_000);
      const before = [ours, theirs].map(({ heard }) => heard.length);
      expect(await store.expire({ key, ttl: 50 })).toBe(true);
      await eventually(() =>
        [ours, theirs].every(({ heard }, index) => heard.slice(before[index]).includes(`invalidated ${key}`)),
      );
      await eventually(async () => (await read()) === null);
    });

    it.concurrent('are set only if there is none, when that is requested', async () => {
      const short = randomUUID();
      expect(await store.set({ key: short, data: 'first', ttl: BRIEF, ifAbsent: true })).toBe(true);
      expect(await other.set({ key: short, data: 'second', ttl: LONG, ifAbsent: true })).toBe(false);
      expect(await read(short)).toBe('first');
      await eventually(async () => (await read(short)) === null);
      expect(await other.set({ key: short, data: 'third', ttl: LONG, ifAbsent: true })).toBe(true);
      expect(await set('fourth', short)).toBe(true);
      expect(await read(short)).toBe('fourth');
    });

    it('are set in place of the one value that counts as none', async () => {
      await set('outdated');
      const over = Buffer.from('outdated');
      const request = { key, data: 'new', ttl: LONG, ifAbsent: true };
      expect(await store.set({ ...request, over: Buffer.from('other') })).toBe(false);
      expect(await read()).toBe('outdated');
      expect(await other.set({ ...request, over })).toBe(true);
      expect(await store.set({ ...request, over })).toBe(false);
      expect(await read()).toBe('new');
    });

    it('do not end a load when setIfAbsent finds one', async () => {
      await set('there');
      const token = await begin({ refresh: true });
      expect(await store.set({ key, data: 'no', ttl: LONG, ifAbsent: true })).toBe(false);
      expect(await commit(token)).toBe(true);
    });
  });

  describe('numbers', () => {
    const reasonOf = (outcome: PromiseSettledResult<number> | undefined): unknown =>
      outcome?.status === 'rejected' ? outcome.reason : outcome;

    it('begin at 0, and are plain integers', async () => {
      expect(await store.increment({ key, by: 5, ttl: LONG })).toBe(5);
      expect(await other.increment({ key, by: -8, ttl: LONG })).toBe(-3);
      expect(await read()).toBe('-3');
      await set('41');
      expect(await store.increment({ key, by: 1, ttl: LONG })).toBe(42);
    });

    it('live from their beginning', async () => {
      await store.increment({ key, by: 1, ttl: 400 });
      await store.increment({ key, by: 1, ttl: LONG });
      expect(await store.ttl(key)).toBeLessThanOrEqual(400);
      await eventually(async () => (await read()) === null);
      expect(await store.increment({ key, by: 1, ttl: LONG })).toBe(1);
    });

    it.each(['text', '', '1.5', ' 1', '01', '9223372036854775808'])('are not made from %j', async (data) => {
      await set(data);
      const [failed, counted] = await Promise.allSettled(
        [key, `${key}:other`].map((each) => store.increment({ key: each, by: 1, ttl: LONG })),
      );
      expect(reasonOf(failed)).toHaveProperty('name', 'ReplyError');
      expect(reasonOf(failed)).toHaveProperty('message', expect.stringContaining('integer'));
      expect(counted).toEqual({ status: 'fulfilled', value: 1 });
      expect(await read()).toBe(data);
    });

    it('are made by each other call, where some fail that are sent with them', async () => {
      await set('text');
      const keys = [`${key}:1`, key, `${key}:2`, key, key, `${key}:1`, key];
      const counted = await Promise.allSettled(keys.map((each) => store.increment({ key: each, by: 1, ttl: LONG })));
      const outcomes = counted.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value : 'failed'));
      expect(outcomes).toEqual([1, 'failed', 1, 'failed', 'failed', 2, 'failed']);
    });

    it('do not pass 64 bits', async () => {
      await set('9223372036854775807');
      const [failed] = await Promise.allSettled([store.increment({ key, by: 1, ttl: LONG })]);
      expect(reasonOf(failed)).toHaveProperty('name', 'ReplyError');
      expect(await read()).toBe('9223372036854775807');
    });

    it('are all counted', async () => {
      await Promise.all(
        [store, other].flatMap((each) => Array.from({ length: 100 }, () => each.increment({ key, by: 1, ttl: LONG }))),
      );
      expect(await read()).toBe('200');
    });
  });

  describe('sets', () => {
    it('count what is new and what is gone', async () => {
      expect(await store.sets.add(key, ['a', 'b', 'a'], LONG)).toBe(2);
      expect(await other.sets.add(key, ['b', 'ü'], LONG)).toBe(1);
      expect([...(await store.sets.members(key))].toSorted()).toEqual(['a', 'b', 'ü']);
      expect(await other.sets.has(key, 'ü')).toBe(true);
      expect(await store.sets.remove(key, ['a', 'c'])).toBe(1);
      expect(await other.sets.has(key, 'a')).toBe(false);
      expect(await store.sets.remove(key, ['b', 'ü'])).toBe(2);
      expect(await store.sets.members(key)).toEqual([]);
      expect(await store.sets.remove(key, ['b'])).toBe(0);
    });

    it('end as a whole, after the time of the last add', async () => {
      await store.sets.add(key, ['a'], LONG);
      await store.sets.add(key, ['b'], 200);
      expect(await other.sets.has(key, 'a')).toBe(true);
      await eventually(async () => (await other.sets.members(key)).length === 0);
      await store.sets.add(key, ['a'], 200);
      await store.sets.add(key, ['a'], LONG);
      await sleep(300);
      expect(await other.sets.has(key, 'a')).toBe(true);
    });

    it('are no values', async () => {
      await store.sets.add(key, ['a'], LONG);
      await store.expiringSets.add(key, ['b'], LONG);
      await rebuild([1]);
      expect(await read()).toBeNull();
      expect(await store.sets.members(key)).toEqual(['a']);
      expect(await store.expiringSets.members(key)).toEqual(['b']);
    });
  });

  describe('expiring sets', () => {
    it('count what is new, what is gone and what is there', async () => {
      expect(await store.expiringSets.add(key, ['a', 'b', 'a'], LONG)).toBe(2);
      expect(await other.expiringSets.add(key, ['b', 'ü'], LONG)).toBe(1);
      expect([...(await store.expiringSets.members(key))].toSorted()).toEqual(['a', 'b', 'ü']);
      expect(await other.expiringSets.size(key)).toBe(3);
      expect(await other.expiringSets.has(key, 'ü')).toBe(true);
      expect(await store.expiringSets.remove(key, ['a', 'c'])).toBe(1);
      expect(await other.expiringSets.has(key, 'a')).toBe(false);
      expect(await store.expiringSets.remove(key, ['b', 'ü'])).toBe(2);
      expect(await store.expiringSets.size(key)).toBe(0);
      expect(await store.expiringSets.members(key)).toEqual([]);
    });

    it('let each member end after its own time', async () => {
      await store.expiringSets.add(key, ['long'], LONG);
      await store.expiringSets.add(key, ['short', 'kept'], 300);
      expect(await other.expiringSets.has(key, 'short')).toBe(true);
      expect(await store.expiringSets.add(key, ['kept'], LONG)).toBe(0);
      await eventually(async () => !(await other.expiringSets.has(key, 'short')));
      expect([...(await store.expiringSets.members(key))].toSorted()).toEqual(['kept', 'long']);
      expect(await store.expiringSets.size(key)).toBe(2);
      expect(await store.expiringSets.remove(key, ['short'])).toBe(0);
      expect(await store.expiringSets.add(key, ['short'], LONG)).toBe(1);
      expect(await store.expiringSets.add(key, ['short'], 50)).toBe(0);
      await eventually(async () => !(await other.expiringSets.has(key, 'short')));
    });
  });
});

eachCacheStore(() => {
  describe('bits', () => {
    const add = (positions: readonly number[], ttl = LONG) => other.bits.add({ key, positions, ttl });
    const has = async (...positions: number[]) =>
      (await other.bits.has({ key, lists: [positions], ttl: LONG }))?.[0] ?? null;
    const beginRebuild = (token: string, lease = LONG) => store.bits.beginRebuild({ key, token, lease, size: 1_000 });
    const addToRebuild = (token: string, positions: readonly number[]) =>
      store.bits.addToRebuild({ key, token, lease: LONG, positions });
    const finishRebuild = (token: string, ttl = LONG) => store.bits.finishRebuild({ key, token, ttl });

    it('are unknown until a rebuild has put them there', async () => {
      expect(await has(1)).toBeNull();
      await add([1]);
      expect(await has(1)).toBeNull();
      expect(await beginRebuild('one')).toBe(true);
      expect(await addToRebuild('one', [2, 9])).toBe(true);
      expect(await has(2)).toBeNull();
      expect(await finishRebuild('one')).toBe(true);
      expect(await has(2, 9)).toBe(true);
      expect(await has(1)).toBe(false);
    });

    it('are distinguished one by one', async () => {
      await rebuild([0, 7, 8]);
      await add([999]);
      const lists = Array.from({ length: 1_000 }, (_, position) => [position]);
      const answers = await store.bits.has({ key, lists, ttl: LONG });
      expect(answers?.flatMap((isSet, position) => (isSet ? [position] : []))).toEqual([0, 7, 8, 999]);
      const pairs = [0, 1, 8].map((position) => [7, position]);
      expect(await store.bits.has({ key, lists: pairs, ttl: LONG })).toEqual([true, false, true]);
    });

    it('that are added during a rebuild are in what it puts there', async () => {
      await rebuild([1]);
      await beginRebuild('two');
      await add([3]);
      expect(await has(1, 3)).toBe(true);
      await addToRebuild('two', [2]);
      expect(await finishRebuild('two')).toBe(true);
      expect(await has(2, 3)).toBe(true);
      expect(await has(1)).toBe(false);
    });

    it('are rebuilt by one at a time, each step of which may be sent twice', async () => {
      expect(await beginRebuild('one')).toBe(true);
      await addToRebuild('one', [1]);
      expect(await beginRebuild('one')).toBe(true);
      expect(await beginRebuild('two')).toBe(false);
      expect(await addToRebuild('two', [2])).toBe(false);
      expect(await finishRebuild('two')).toBe(false);
      await store.bits.dropRebuild({ key, token: 'two' });
      expect(await finishRebuild('one')).toBe(true);
      expect(await finishRebuild('one')).toBe(true);
      expect(await has(1)).toBe(true);
      expect(await has(2)).toBe(false);
      expect(await beginRebuild('two')).toBe(true);
      expect(await addToRebuild('one', [4])).toBe(false);
      expect(await has(1)).toBe(true);
    });

    it('are not rebuilt by one that gave up, or took too long', async () => {
      await rebuild([1]);
      await beginRebuild('dropped');
      await store.bits.dropRebuild({ key, token: 'dropped' });
      expect(await finishRebuild('dropped')).toBe(false);
      expect(await beginRebuild('late', 100)).toBe(true);
      await eventually(async () => await beginRebuild('next'));
      expect(await addToRebuild('late', [2])).toBe(false);
      expect(await finishRebuild('late')).toBe(false);
      expect(await has(1)).toBe(true);
    });

    it('end after their time, which goes on when they are used', async () => {
      await rebuild([1], 400);
      await store.bits.has({ key, lists: [[1]], ttl: 400 });
      expect(await eventually(async () => (await store.bits.has({ key, lists: [[1]], ttl: 1 })) === null)).toBe(true);
      await rebuild([1], 400);
      await add([2], LONG);
      await sleep(500);
      expect(await store.bits.has({ key, lists: [[1, 2]], ttl: 1 })).toEqual([true]);
    });

    it('are cleared with what is being rebuilt', async () => {
      await rebuild([1]);
      await beginRebuild('two');
      await other.bits.clear(key);
      await other.bits.clear(key);
      expect(await has(1)).toBeNull();
      expect(await addToRebuild('two', [2])).toBe(false);
      expect(await finishRebuild('two')).toBe(false);
      expect(await has(2)).toBeNull();
    });
  });
});

eachCacheStore(({ open, ownsConnection }) => {
  describe('the connection', () => {
    it('answers a ping', async () => {
      await expect(Promise.resolve(store.ping())).resolves.toBeDefined();
    });

    it('reports to a later listener that it is open, and to all listeners', async () => {
      const late = new RecordingCacheListener();
      store.listen(late);
      await eventually(() => late.heard.includes('connected'));
      await other.invalidate({ key });
      await eventually(() => late.heard.includes(`invalidated ${key}`));
      await toHear(`invalidated ${key}`);
    });

    // A client of the user's goes on.
    if (ownsConnection) {
      it('rejects calls after it was closed', async () => {
        const closed = await open();
        await closed.store.set({ key, data: 'x', ttl: LONG });
        closed.store.close();
        const asked = [
          closed.store.read(key),
          ask(closed.store),
          closed.store.invalidate({ key }),
          closed.store.ping(),
          closed.store.sets.members(key),
          closed.store.deleteMatching({ match: { prefix: key }, batch: 100 }),
        ];
        for (const outcome of await Promise.allSettled(asked)) {
          expect(outcome).toMatchObject({ status: 'rejected', reason: expect.any(Error) });
        }
        await closed.close();
      });
    }
  });
});
