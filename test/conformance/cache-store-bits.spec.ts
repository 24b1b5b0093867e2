import { setTimeout as sleep } from 'node:timers/promises';
import { eventually } from '../support/eventually.js';
import { eachCacheStore, LONG, store, other, key, rebuild } from './each-cache-store.js';

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
