import { randomUUID } from 'node:crypto';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { CacheStore, LeaseAnswer, LeaseRequest } from '../../lib/contracts/cache-store.js';
import { cacheStores, type OpenCacheStore } from '../support/cache-stores.js';
import { eventually } from '../support/eventually.js';
import { RecordingCacheListener } from '../support/recording-cache-listener.js';

/** Long enough (ms) that nothing which a test does not wait for ends by itself. */
const LONG = 60_000;

describe.each(cacheStores)('the cache store $name', ({ open, ownsConnection }) => {
  let opened: OpenCacheStore;
  let store: CacheStore;
  let other: CacheStore;
  let key: string;
  const ours = new RecordingCacheListener();
  const theirs = new RecordingCacheListener();

  beforeAll(async () => {
    opened = await open();
    ({ store, other } = opened);
    store.listen(ours);
    other.listen(theirs);
    await eventually(() => [ours, theirs].every(({ heard }) => heard.includes('connected')));
  });
  beforeEach(() => {
    key = randomUUID();
  });
  afterAll(() => opened.close());

  const set = (data: string | Buffer, of = key) => store.set({ key: of, data, ttl: LONG });
  const commit = (token: string, data = 'loaded', of = key) => store.commit({ key: of, token, data, ttl: LONG });
  const read = async (of = key) => (await other.read(of))?.toString() ?? null;
  const ask = (on: CacheStore, request: Partial<LeaseRequest> = {}) =>
    on.lease({ key, token: randomUUID(), lease: LONG, refresh: false, waits: true, ...request });
  const statusOf = async (on: CacheStore, request?: Partial<LeaseRequest>) => (await ask(on, request)).status;
  const raise = (token: string, ttl = LONG) => store.invalidate({ key, barrier: { token, ttl } });
  const toHear = (message: string) => eventually(() => [ours, theirs].every(({ heard }) => heard.includes(message)));

  /** The token of a load that has the lease. */
  async function begin(request: Partial<LeaseRequest> = {}): Promise<string> {
    const token = randomUUID();
    expect(await statusOf(store, { token, ...request })).toBe('leased');
    return token;
  }

  /** Puts bits under the key. */
  async function rebuild(positions: readonly number[], ttl = LONG): Promise<void> {
    const token = randomUUID();
    expect(await store.bits.beginRebuild({ key, token, lease: LONG, size: 1_000 })).toBe(true);
    expect(await store.bits.addToRebuild({ key, token, lease: LONG, positions })).toBe(true);
    expect(await store.bits.finishRebuild({ key, token, ttl })).toBe(true);
  }

  describe('values', () => {
    it('are read by everybody as they were written', async () => {
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

    it('are told apart by their keys, whatever those are made of', async () => {
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

    it('end after their time', async () => {
      await store.set({ key, data: 'short', ttl: 250 });
      expect(await read()).toBe('short');
      const left = await other.ttl(key);
      expect(left).toBeGreaterThan(0);
      expect(left).toBeLessThanOrEqual(250);
      await eventually(async () => (await read()) === null);
      expect(await store.ttl(key)).toBeNull();
      expect(await statusOf(store)).toBe('leased');
    });

    it('of a load end after their time', async () => {
      const token = await begin();
      await store.commit({ key, token, data: 'short', ttl: 250 });
      expect(await read()).toBe('short');
      await eventually(async () => (await read()) === null);
    });

    it('end at another time when told so, and everybody hears it', async () => {
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

    it('are set only where there is none, if that is asked for', async () => {
      expect(await store.set({ key, data: 'first', ttl: 1_000, ifAbsent: true })).toBe(true);
      expect(await other.set({ key, data: 'second', ttl: LONG, ifAbsent: true })).toBe(false);
      expect(await read()).toBe('first');
      await eventually(async () => (await read()) === null);
      expect(await other.set({ key, data: 'third', ttl: LONG, ifAbsent: true })).toBe(true);
      expect(await set('fourth')).toBe(true);
      expect(await read()).toBe('fourth');
    });

    it('that are there let a load go on which set found nothing to do for', async () => {
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

    it.each(['text', '', '1.5', ' 1', '01', '9223372036854775808'])('do not come of %j', async (data) => {
      await set(data);
      const [failed, counted] = await Promise.allSettled(
        [key, `${key}:other`].map((each) => store.increment({ key: each, by: 1, ttl: LONG })),
      );
      expect(reasonOf(failed)).toHaveProperty('name', 'ReplyError');
      expect(reasonOf(failed)).toHaveProperty('message', expect.stringContaining('integer'));
      expect(counted).toEqual({ status: 'fulfilled', value: 1 });
      expect(await read()).toBe(data);
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

  describe('a load', () => {
    it('stores what it found, and then has no lease any more', async () => {
      const token = await begin();
      expect(await commit(token)).toBe(true);
      expect(await read()).toBe('loaded');
      expect(await statusOf(other)).toBe('hit');
      expect(await store.renew({ key, token, lease: LONG })).toBe(false);
    });

    it('is one at a time', async () => {
      const answers = await Promise.all([store, other].flatMap((each) => Array.from({ length: 20 }, () => ask(each))));
      expect(answers.filter(({ status }) => status === 'leased')).toHaveLength(1);
      for (const answer of answers) if (answer.status === 'busy') expect(answer.remaining).toBeLessThanOrEqual(LONG);
      expect(answers.filter(({ status }) => status === 'busy')).toHaveLength(39);
    });

    it('tells others how long its lease runs', async () => {
      await begin({ lease: 5_000 });
      const answer = await ask(other);
      expect(answer).toEqual({ status: 'busy', remaining: expect.any(Number) });
      expect((answer as { remaining: number }).remaining).toBeGreaterThan(3_000);
      expect((answer as { remaining: number }).remaining).toBeLessThanOrEqual(5_000);
    });

    it('begins at a time that rises', async () => {
      const times: number[] = [];
      for (let round = 0; round < 20; round++) {
        const token = randomUUID();
        const answer = (await ask(round % 2 ? store : other, { token })) as LeaseAnswer & { status: 'leased' };
        times.push(answer.at);
        await store.release({ key, token });
      }
      expect(times.every(Number.isSafeInteger)).toBe(true);
      expect(times).toEqual([...new Set(times)].toSorted((a, b) => a - b));
    });

    it('may ask twice', async () => {
      const token = await begin();
      expect(await statusOf(store, { token })).toBe('leased');
      expect(await statusOf(other)).toBe('busy');
      expect(await commit(token)).toBe(true);
      expect(await statusOf(store, { token })).toBe('hit');
    });

    it('may commit twice', async () => {
      const token = await begin();
      await commit(token);
      await commit(token);
      expect(await read()).toBe('loaded');
      await set('newer');
      expect(await commit(token)).toBe(false);
      expect(await read()).toBe('newer');
    });

    it('may be released twice, and does not take the lease of the next one along', async () => {
      const first = await begin();
      await store.release({ key, token: first });
      const second = await begin();
      await store.release({ key, token: first });
      expect(await store.renew({ key, token: first, lease: LONG })).toBe(false);
      expect(await statusOf(other)).toBe('busy');
      expect(await commit(first)).toBe(false);
      expect(await commit(second)).toBe(true);
    });

    it('stores nothing once its lease has ended', async () => {
      const token = await begin({ lease: 100 });
      const next = randomUUID();
      await eventually(async () => (await statusOf(other, { token: next })) === 'leased');
      await other.release({ key, token: next });
      expect(await commit(token)).toBe(false);
      expect(await store.renew({ key, token, lease: LONG })).toBe(false);
      expect(await read()).toBeNull();
    });

    it('stores nothing once a newer one has the lease', async () => {
      const first = await begin({ lease: 100 });
      const second = randomUUID();
      await eventually(async () => (await statusOf(other, { token: second })) === 'leased');
      expect(await commit(first, 'old')).toBe(false);
      expect(await read()).toBeNull();
      expect(await commit(second, 'new')).toBe(true);
      expect(await read()).toBe('new');
    });

    it('keeps its lease by renewing it', async () => {
      const token = await begin({ lease: 1_000 });
      expect(await store.renew({ key, token, lease: LONG })).toBe(true);
      await sleep(1_050);
      expect(await statusOf(other)).toBe('busy');
      expect(await commit(token)).toBe(true);
    });

    it('never shortens its lease', async () => {
      const token = await begin();
      expect(await store.renew({ key, token, lease: 10 })).toBe(true);
      expect(await statusOf(store, { token, lease: 10 })).toBe('leased');
      const answer = await ask(other);
      expect(answer).toMatchObject({ status: 'busy' });
      expect((answer as { remaining: number }).remaining).toBeGreaterThan(1_000);
    });

    it('refreshes a value that stays readable', async () => {
      await set('old');
      const token = await begin({ refresh: true });
      expect(await read()).toBe('old');
      expect(await statusOf(other)).toBe('hit');
      expect(await statusOf(other, { refresh: true })).toBe('busy');
      expect(await commit(token, 'new')).toBe(true);
      expect(await read()).toBe('new');
    });

    it('refreshes what was seen, and nothing that has taken its place', async () => {
      await set('old value');
      expect(await statusOf(other, { refresh: true, seen: 'older' })).toBe('hit');
      const token = await begin({ refresh: true, seen: Buffer.from('old') });
      expect(await commit(token, 'new value')).toBe(true);
      expect(await statusOf(other, { refresh: true, seen: 'old' })).toBe('hit');
      await store.invalidate({ key });
      expect(await statusOf(other, { refresh: true, seen: 'new' })).toBe('leased');
    });

    it('refreshes nothing that was invalidated meanwhile', async () => {
      await set('old');
      const token = await begin({ refresh: true });
      await other.invalidate({ key });
      expect(await commit(token)).toBe(false);
      expect(await read()).toBeNull();
    });
  });

  describe('a change', () => {
    const changes: [string, () => unknown][] = [
      ['invalidate', () => other.invalidate({ key })],
      ['set', () => other.set({ key, data: '7', ttl: LONG })],
      ['set where there is none', () => other.set({ key, data: '7', ttl: LONG, ifAbsent: true })],
      ['increment', () => other.increment({ key, by: 7, ttl: LONG })],
      ['deleteMatching by prefix', () => other.deleteMatching({ match: { prefix: key.slice(0, 30) }, batch: 100 })],
      [
        'deleteMatching by pattern',
        () => other.deleteMatching({ match: { pattern: `${key.slice(0, 30)}*` }, batch: 100 }),
      ],
    ];

    it.each(changes)('by %s fences the load that was under way', async (_, change) => {
      const token = await begin();
      await change();
      const after = await read();
      expect(await commit(token, 'old')).toBe(false);
      expect(await store.renew({ key, token, lease: LONG })).toBe(false);
      expect(await read()).toBe(after);
    });

    it.each(changes)('by %s wakes whoever waits for that load', async (_, change) => {
      await begin();
      expect(await statusOf(store)).toBe('busy');
      const woken = [`ended ${key}`, `invalidated ${key}`, `prefix ${key.slice(0, 30)}`, 'prefix '];
      const before = ours.heard.length;
      await change();
      await eventually(() => ours.heard.slice(before).some((message) => woken.includes(message)));
    });

    it('fences the load before it, and not the one after it', async () => {
      const first = await begin();
      await other.invalidate({ key });
      const second = await begin();
      expect(await commit(first, 'old')).toBe(false);
      expect(await read()).toBeNull();
      expect(await commit(second, 'new')).toBe(true);
      expect(await commit(first, 'old')).toBe(false);
      expect(await read()).toBe('new');
    });

    it('is told to everybody, also where there was nothing', async () => {
      await other.invalidate({ key });
      await toHear(`invalidated ${key}`);
      await store.set({ key: `${key}:set`, data: 'x', ttl: LONG });
      await toHear(`invalidated ${key}:set`);
    });

    it('is heard in order', async () => {
      const keys = Array.from({ length: 50 }, (_, index) => `{${key}}:${index}`);
      for (const each of keys) await store.invalidate({ key: each });
      await toHear(`invalidated ${keys.at(-1)}`);
      const heard = theirs.heard.filter((message) => message.startsWith(`invalidated {${key}}`));
      expect(heard).toEqual(keys.map((each) => `invalidated ${each}`));
    });
  });

  describe('the end of a load', () => {
    it.each([
      ['commits', (token: string) => commit(token)],
      ['releases', (token: string) => store.release({ key, token })],
    ])('is told to those who wait when it %s', async (_, end) => {
      const token = await begin();
      expect(await statusOf(other)).toBe('busy');
      await end(token);
      await eventually(() => theirs.heard.includes(`ended ${key}`));
    });

    it('is told although the load renewed its lease meanwhile', async () => {
      const token = await begin({ lease: 5_000 });
      expect(await statusOf(other)).toBe('busy');
      expect(await store.renew({ key, token, lease: LONG })).toBe(true);
      expect(await statusOf(store, { token })).toBe('leased');
      await store.release({ key, token });
      await eventually(() => theirs.heard.includes(`ended ${key}`));
    });

    it('is told to nobody when nobody waits', async () => {
      const [token, next] = [await begin(), `{${key}}:next`];
      await commit(token);
      const renewed = await begin({ refresh: true });
      expect(await statusOf(other, { refresh: true, waits: false })).toBe('busy');
      await store.release({ key, token: renewed });
      await store.invalidate({ key: next });
      await toHear(`invalidated ${next}`);
      expect([...ours.heard, ...theirs.heard]).not.toContain(`ended ${key}`);
    });

    it('does not come of a foreign release', async () => {
      const token = await begin();
      expect(await statusOf(other)).toBe('busy');
      await other.release({ key, token: randomUUID() });
      expect(await statusOf(other)).toBe('busy');
      expect(await commit(token)).toBe(true);
    });
  });

  describe('a barrier', () => {
    it('deletes the value, fences the load, and lets none begin until it is lifted', async () => {
      await set('old');
      const token = await begin({ refresh: true });
      await raise('write');
      expect(await read()).toBeNull();
      expect(await commit(token)).toBe(false);
      expect(await statusOf(store)).toBe('barrier');
      expect(await statusOf(other, { refresh: true })).toBe('barrier');
      expect(await statusOf(other, { token })).toBe('barrier');
      await other.invalidate({ key, lift: 'write' });
      const next = await begin();
      expect(await commit(next)).toBe(true);
    });

    it('ends by itself', async () => {
      await raise('write', 300);
      expect(await statusOf(store)).toBe('barrier');
      await eventually(async () => (await statusOf(store)) === 'leased');
    });

    it('is over when the last of several has been lifted', async () => {
      await raise('one');
      await raise('two');
      await store.invalidate({ key, lift: 'one' });
      expect(await statusOf(other)).toBe('barrier');
      await store.invalidate({ key, lift: 'two' });
      expect(await statusOf(other)).toBe('leased');
    });

    it('is over when the last of several has ended', async () => {
      await raise('long');
      await raise('short', 100);
      await sleep(200);
      expect(await statusOf(other)).toBe('barrier');
      await raise('short', 400);
      await store.invalidate({ key, lift: 'long' });
      expect(await statusOf(other)).toBe('barrier');
      await eventually(async () => (await statusOf(other)) === 'leased');
    });

    it('is not lifted by another token, or by a plain invalidation', async () => {
      await raise('write');
      await store.invalidate({ key, lift: 'other' });
      await store.invalidate({ key });
      expect(await statusOf(other)).toBe('barrier');
    });

    it('can be followed at once by that of another write', async () => {
      await raise('one');
      await store.invalidate({ key, lift: 'one', barrier: { token: 'two', ttl: LONG } });
      expect(await statusOf(other)).toBe('barrier');
      await store.invalidate({ key, lift: 'two' });
      expect(await statusOf(other)).toBe('leased');
    });

    it('may be raised and lifted twice', async () => {
      await raise('write');
      await raise('write');
      await store.invalidate({ key, lift: 'write' });
      const token = await begin();
      await store.invalidate({ key, lift: 'write' });
      expect(await commit(token)).toBe(false);
      expect(await statusOf(store)).toBe('leased');
    });

    it('runs on when it is renewed', async () => {
      await raise('write', 300);
      expect(await store.renewBarrier({ key, token: 'write', ttl: LONG })).toBe(true);
      await sleep(400);
      expect(await statusOf(other)).toBe('barrier');
    });

    it('is never shortened by a renewal', async () => {
      await raise('write');
      expect(await store.renewBarrier({ key, token: 'write', ttl: 50 })).toBe(true);
      await sleep(150);
      expect(await statusOf(other)).toBe('barrier');
    });

    it('that has ended is not renewed', async () => {
      expect(await store.renewBarrier({ key, token: 'write', ttl: LONG })).toBe(false);
      await raise('long');
      await raise('short', 50);
      await sleep(150);
      expect(await store.renewBarrier({ key, token: 'short', ttl: LONG })).toBe(false);
      await store.invalidate({ key, lift: 'long' });
      expect(await store.renewBarrier({ key, token: 'long', ttl: LONG })).toBe(false);
      expect(await statusOf(other)).toBe('leased');
    });

    it('lets no value be set until it is lifted', async () => {
      await raise('write');
      expect(await set('written')).toBe(false);
      expect(await read()).toBeNull();
      expect(await statusOf(other)).toBe('barrier');
      await store.invalidate({ key, lift: 'write' });
      expect(await set('written')).toBe(true);
      expect(await read()).toBe('written');
    });

    it('outlives a deletion by prefix', async () => {
      await raise('write');
      await store.deleteMatching({ match: { prefix: key }, batch: 100 });
      expect(await statusOf(other)).toBe('barrier');
    });
  });

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

    it('tell of an invalidation between the begin and the read', async () => {
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
      expect(next.at).toBeGreaterThan(tag?.version as number);
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

    it('live for the longest time that was asked for', async () => {
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

    it('tells of everything when it is by pattern', async () => {
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

    it('are each told apart', async () => {
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

  describe('scheduled deletions', () => {
    /** Stores may count whole milliseconds, and round them up. */
    const ROUNDING = 2;
    const due = async (limit = 100, claim = LONG) => (await other.deletions.claim(limit, claim)).keys;
    const next = async () => (await store.deletions.claim(0, LONG)).next;

    async function scheduleNow(keys: readonly string[]): Promise<void> {
      await store.deletions.schedule(keys, 0);
      await eventually(async () => (await next()) === 0);
    }

    afterEach(async () => {
      await eventually(async () => {
        const claimed = await store.deletions.claim(1_000, LONG);
        await store.deletions.done(claimed.keys);
        return claimed.next === null;
      });
    });

    it('fall due after their delay, and everybody is told of it', async () => {
      expect(await other.deletions.claim(100, LONG)).toEqual({ keys: [], next: null });
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

    it('are given to one only', async () => {
      const keys = Array.from({ length: 40 }, (_, index) => `${key}:${index}`);
      await scheduleNow(keys);
      const claims = await Promise.all(
        [store, other].flatMap((each) => Array.from({ length: 4 }, () => each.deletions.claim(8, LONG))),
      );
      expect(claims.every((claim) => claim.keys.length <= 8)).toBe(true);
      const claimed = claims.flatMap((claim) => claim.keys);
      expect(claimed.toSorted()).toEqual(keys.toSorted());
      await store.deletions.done(keys);
    });

    it('are due at once for others beyond the limit', async () => {
      await scheduleNow([`${key}:1`, `${key}:2`]);
      const first = await store.deletions.claim(1, LONG);
      expect(first).toEqual({ keys: [expect.any(String)], next: 0 });
      expect(await due()).toHaveLength(1);
      await store.deletions.done([`${key}:1`, `${key}:2`]);
    });

    it('fall due again when nobody says that they are done', async () => {
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

    it('that were scheduled anew since they were claimed are not done', async () => {
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

  describe('the connection', () => {
    it('answers a ping', async () => {
      await expect(Promise.resolve(store.ping())).resolves.toBeDefined();
    });

    it('tells one who comes later that it is there, and tells all who listen', async () => {
      const late = new RecordingCacheListener();
      store.listen(late);
      await eventually(() => late.heard.includes('connected'));
      await other.invalidate({ key });
      await eventually(() => late.heard.includes(`invalidated ${key}`));
      await toHear(`invalidated ${key}`);
    });

    // A client of the user's goes on.
    if (ownsConnection) {
      it('rejects what is asked after it was closed', async () => {
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
