import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { LeaseAnswer } from 'nest-redis-lock/backend';
import { eventually } from '../support/eventually.js';
import {
  eachCacheStore,
  LONG,
  store,
  other,
  key,
  theirs,
  set,
  commit,
  read,
  ask,
  toHear,
  begin,
} from './each-cache-store.js';

eachCacheStore(() => {
  describe('tags', () => {
    const tags = () => ['a', 'b', 'a}c'].map((name) => `${name}:${key}`);

    it('have no version until they begin', async () => {
      const [a, b, c] = tags() as [string, string, string];
      expect(await store.readTags([a, b, c])).toEqual([null, null, null]);
      const [begun] = await store.beginTags([b], LONG);
      expect(begun).toEqual({ version: expect.any(Number), begun: true });
      expect(await other.readTags([a, b, c])).toEqual([null, begun?.version, null]);
      const again = await other.beginTags([a, b, c], LONG);
      expect(again.map((each) => each.begun)).toEqual([true, true, true]);
      await store.invalidateTag(b);
      expect(await other.beginTags([b], LONG)).toEqual([{ version: expect.any(Number), begun: false }]);
      expect(again[1]?.version).toBe(begun?.version);
      expect(again.every(({ version }) => Number.isSafeInteger(version) && version > 0)).toBe(true);
      expect(await store.readTags([])).toEqual([]);
      expect(await store.beginTags([], LONG)).toEqual([]);
    });

    it('begin once when they are named twice', async () => {
      const [first, second] = await store.beginTags([key, key], LONG);
      expect(first?.begun).toBe(true);
      expect(second).toEqual({ version: first?.version, begun: true });
    });

    it('have a greater version after each invalidation', async () => {
      const [begun] = await store.beginTags([key], LONG);
      const versions = [begun?.version];
      for (let round = 0; round < 20; round++) {
        await (round % 2 ? store : other).invalidateTag(key);
        versions.push((await store.readTags([key]))[0] as number);
      }
      expect(versions).toEqual([...new Set(versions)].toSorted((a, b) => Number(a) - Number(b)));
      expect(await store.beginTags([key], LONG)).toEqual([{ version: versions.at(-1), begun: false }]);
    });

    it('show an invalidation between the begin and the read', async () => {
      const [a, b] = tags() as [string, string];
      const begun = await store.beginTags([a, b], LONG);
      await other.invalidateTag(b);
      const now = await store.readTags([a, b]);
      expect(now[0]).toBe(begun[0]?.version);
      expect(now[1]).toBeGreaterThan(begun[1]?.version as number);
    });

    it('remember an invalidation before they begin', async () => {
      const lease = (await ask(store)) as LeaseAnswer & { status: 'leased' };
      await other.invalidateTag(key);
      const [tag] = await store.beginTags([key], LONG);
      expect(tag?.begun).toBe(false);
      expect(tag?.version).toBeGreaterThan(lease.at);
      await store.invalidate({ key });
      const next = (await ask(store)) as LeaseAnswer & { status: 'leased' };
      expect(next.at).toBeGreaterThanOrEqual(tag?.version as number);
    });

    it('are invalidated before everybody', async () => {
      await other.invalidateTag(key);
      await toHear(`tag ${key}`);
    });

    it('end after their time, and begin with a version that they never had', async () => {
      const [begun] = await store.beginTags([key], 100);
      await eventually(async () => (await other.readTags([key]))[0] === null);
      const [again] = await store.beginTags([key], LONG);
      expect(again?.begun).toBe(true);
      expect(again?.version).toBeGreaterThan(begun?.version as number);
    });

    it('live for the longest requested time', async () => {
      await store.beginTags([key], 200);
      await other.beginTags([key], LONG);
      await store.beginTags([key], 50);
      const before = await store.readTags([key]);
      await sleep(300);
      expect(await store.readTags([key])).toEqual(before);
      expect(before).not.toEqual([null]);
    });
  });

  describe('deleteMatching', () => {
    const names = ['a', 'b', 'ab', 'a*', 'a]', 'a[b', 'a^', 'a\\', 'a-b', 'ü', 'a\nb', 'A', 'a:b:c'];

    async function fill(): Promise<void> {
      await Promise.all(names.map((name) => set(name, `${key}:${name}`)));
    }
    async function missing(): Promise<string[]> {
      const values = await Promise.all(names.map((name) => read(`${key}:${name}`)));
      return names.filter((_, index) => values[index] === null);
    }
    const escaped = String.raw;

    it.each<[string, string[]]>([
      ['*', names],
      ['', []],
      ['a', ['a']],
      ['a?', ['ab', 'a*', 'a]', 'a^', 'a\\']],
      ['?', ['a', 'b', 'A']],
      ['??', ['ab', 'a*', 'a]', 'a^', 'a\\', 'ü']],
      ['a*b', ['ab', 'a[b', 'a-b', 'a\nb']],
      ['a**b', ['ab', 'a[b', 'a-b', 'a\nb']],
      ['a*b*c', ['a:b:c']],
      ['[ab]', ['a', 'b']],
      ['[b-a]', ['a', 'b']],
      ['[^a]', ['b', 'A']],
      ['[a-z]*', names.filter((name) => /^[a-z]/.test(name))],
      ['a[^b]', ['a*', 'a]', 'a^', 'a\\']],
      [escaped`a\*`, ['a*']],
      [escaped`a\?`, []],
      [escaped`a[\]]`, ['a]']],
      [escaped`a[\^]`, ['a^']],
      [escaped`a\[b`, ['a[b']],
      [escaped`a\\`, ['a\\']],
      ['a[', []],
      ['a[b', ['ab']],
      ['a[]', []],
      ['ü', ['ü']],
      ['a.b', []],
    ])('deletes what matches %j', async (pattern, gone) => {
      await fill();
      const match = { pattern: `${key}:${pattern}` };
      expect(await store.deleteMatching({ match, batch: 5 })).toBe(gone.length);
      expect(await missing()).toEqual(names.filter((name) => gone.includes(name)));
    });

    it.each(['', 'a', 'a*', 'a[', 'a\\', '?', 'z', 'ü'])('deletes what begins with %j', async (prefix) => {
      await fill();
      const gone = names.filter((name) => name.startsWith(prefix));
      expect(await store.deleteMatching({ match: { prefix: `${key}:${prefix}` }, batch: 3 })).toBe(gone.length);
      expect(await missing()).toEqual(gone);
      await toHear(`prefix ${key}:${prefix}`);
    });

    it.each(['{', '{t', '{t}', '{t}:', 'x{', 'x}', 'x%7D', '%'])(
      'deletes by prefix with braces: %j',
      async (prefix) => {
        const keys = [`{t}:${key}`, `{t}${key}`, `x{y${key}`, `x}y${key}`, `x%7Dy${key}`, `%${key}`];
        await Promise.all(keys.map((each) => set('x', each)));
        const tokens = await Promise.all(keys.map((each) => begin({ key: each, refresh: true })));
        await store.deleteMatching({ match: { prefix }, batch: 100 });
        for (const [index, each] of keys.entries()) {
          const gone = each.startsWith(prefix);
          expect({ each, value: await read(each) }).toEqual({ each, value: gone ? null : 'x' });
          if (gone)
            expect({ each, stored: await commit(tokens[index] as string, 'y', each) }).toEqual({ each, stored: false });
        }
      },
    );

    it('reports every key as changed when it is by pattern', async () => {
      const before = theirs.heard.length;
      await store.deleteMatching({ match: { pattern: `${key}*` }, batch: 100 });
      await eventually(() => theirs.heard.slice(before).includes('prefix '));
    });

    it('fences the loads of matching keys, and no values but theirs', async () => {
      const [inside, outside] = [`${key}:in`, `other:${key}`];
      const [fenced, free] = [await begin({ key: inside }), await begin({ key: outside })];
      await set('stays', `other:${key}:value`);
      expect(await other.deleteMatching({ match: { prefix: `${key}:` }, batch: 100 })).toBe(0);
      expect(await commit(fenced, 'old', inside)).toBe(false);
      expect(await commit(free, 'new', outside)).toBe(true);
      expect(await read(`other:${key}:value`)).toBe('stays');
    });

    it('leaves nothing of the loads that were under way when it began', async () => {
      const keys = Array.from({ length: 400 }, (_, index) => `${key}:${index}`);
      const tokens = await Promise.all(keys.map((each) => begin({ key: each })));
      const deleted = store.deleteMatching({ match: { prefix: `${key}:` }, batch: 10 });
      const stored = await Promise.all(
        keys.map(async (each, index) => {
          await sleep(index / 10);
          return other.commit({ key: each, token: tokens[index] as string, data: 'old', ttl: LONG });
        }),
      );
      expect(await deleted).toBe(stored.filter(Boolean).length);
      const left = await Promise.all(keys.map((each) => read(each)));
      expect(left.filter((value) => value !== null)).toEqual([]);
    });

    it('deletes what was there when it began, while others write', async () => {
      const keys = Array.from({ length: 500 }, (_, index) => `${key}:${index}`);
      await Promise.all(keys.map((each) => set('old', each)));
      const deleted = store.deleteMatching({ match: { prefix: `${key}:` }, batch: 10 });
      const written = new AbortController();
      const writes = (async () => {
        for (let index = 0; !written.signal.aborted; index++) {
          await set('new', `${key}:later:${index}`);
          await nextTurn();
        }
      })();
      expect(await deleted).toBeGreaterThanOrEqual(500);
      written.abort();
      await writes;
      const left = await Promise.all(keys.map((each) => read(each)));
      expect(left.filter((value) => value !== null)).toEqual([]);
    });
  });

  describe('scheduled deletions', () => {
    /** Stores may count whole milliseconds, and round them up. */
    const ROUNDING = 2;
    const due = async (limit = 100, claim = LONG) => (await other.deletions.claim(limit, claim)).names;
    const next = async () => (await store.deletions.claim(0, LONG)).next;

    async function scheduleNow(keys: readonly string[]): Promise<void> {
      await store.deletions.schedule(keys, 0);
      await eventually(async () => (await next()) === 0);
    }

    afterEach(async () => {
      await eventually(async () => {
        const claimed = await store.deletions.claim(1_000, LONG);
        await store.deletions.done(claimed.names);
        return claimed.next === null;
      });
    });

    it('fall due after their delay, which is published to every process', async () => {
      expect(await other.deletions.claim(100, LONG)).toEqual({ names: [], next: null });
      await store.deletions.schedule([key, `${key}:2`], 301);
      await toHear('scheduled 301');
      expect(await due()).toEqual([]);
      expect(await next()).toBeGreaterThan(0);
      expect(await next()).toBeLessThanOrEqual(301 + ROUNDING);
      const found: string[] = [];
      await eventually(async () => found.push(...(await due())) === 2);
      expect(found.toSorted()).toEqual([key, `${key}:2`]);
      await store.deletions.done(found);
      expect(await next()).toBeNull();
    });

    it('are given to one process only', async () => {
      const keys = Array.from({ length: 40 }, (_, index) => `${key}:${index}`);
      await scheduleNow(keys);
      const claims = await Promise.all(
        [store, other].flatMap((each) => Array.from({ length: 4 }, () => each.deletions.claim(8, LONG))),
      );
      expect(claims.every((claim) => claim.names.length <= 8)).toBe(true);
      const claimed = claims.flatMap((claim) => claim.names);
      expect(claimed.toSorted()).toEqual(keys.toSorted());
      await store.deletions.done(keys);
    });

    it('are due at once for others beyond the limit', async () => {
      await scheduleNow([`${key}:1`, `${key}:2`]);
      const first = await store.deletions.claim(1, LONG);
      expect(first).toEqual({ names: [expect.any(String)], next: 0 });
      expect(await due()).toHaveLength(1);
      await store.deletions.done([`${key}:1`, `${key}:2`]);
    });

    it('stay claimed while their claim is renewed', async () => {
      await scheduleNow([key]);
      expect(await due(100, 500)).toEqual([key]);
      await other.deletions.renew([key, 'unknown'], LONG);
      expect(await next()).toBeGreaterThan(LONG / 2);
      await other.deletions.renew([key], 0);
      await eventually(async () => (await next()) === 0);
      expect(await due()).toEqual([key]);
      await store.deletions.done([key]);
    });

    it('are not postponed by a renewal of the claim when they were scheduled again', async () => {
      await scheduleNow([key]);
      expect(await due()).toEqual([key]);
      await scheduleNow([key]);
      await other.deletions.renew([key], LONG);
      expect(await due()).toEqual([key]);
      await store.deletions.done([key]);
    });

    it('fall due again unless a process reports them done', async () => {
      await scheduleNow([key]);
      expect(await due(100, 300)).toEqual([key]);
      expect(await next()).toBeGreaterThan(0);
      expect(await next()).toBeLessThanOrEqual(300 + ROUNDING);
      expect(await due()).toEqual([]);
      await eventually(async () => (await due(100, 300)).includes(key));
      await store.deletions.done([key]);
      await store.deletions.done([key]);
      expect(await next()).toBeNull();
    });

    it('keep the later of two times', async () => {
      await store.deletions.schedule([key], 50);
      await other.deletions.schedule([key], 600);
      await store.deletions.schedule([key], 50);
      await sleep(150);
      expect(await due()).toEqual([]);
      await eventually(async () => (await due()).includes(key));
      await store.deletions.done([key]);
    });

    it('that were scheduled again since they were claimed are not done', async () => {
      await scheduleNow([key]);
      expect(await due()).toEqual([key]);
      await other.deletions.schedule([key], 50);
      await store.deletions.done([key]);
      await eventually(async () => (await due()).includes(key));
      await store.deletions.done([key]);
      expect(await next()).toBeNull();
    });

    it('that nobody claimed are not done', async () => {
      await store.deletions.schedule([key], 50);
      await store.deletions.done([key]);
      await eventually(async () => (await due()).includes(key));
      await store.deletions.done([key]);
    });
  });
});
