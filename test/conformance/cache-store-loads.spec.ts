import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CacheStore, LeaseAnswer, LeaseRequest } from 'nest-redis-lock/backend';
import { eventually } from '../support/eventually.js';
import {
  eachCacheStore,
  LONG,
  store,
  other,
  key,
  ours,
  theirs,
  set,
  commit,
  read,
  ask,
  statusOf,
  raise,
  toHear,
  begin,
} from './each-cache-store.js';
import { CACHE_CASES } from './wrong-cache-stores.js';

eachCacheStore(() => {
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

    it('begins at a time that never falls', async () => {
      const times: number[] = [];
      for (let round = 0; round < 20; round++) {
        const token = randomUUID();
        const answer = (await ask(round % 2 ? store : other, { token })) as LeaseAnswer & { status: 'leased' };
        times.push(answer.at);
        await store.release({ key, token });
      }
      expect(times.every(Number.isSafeInteger)).toBe(true);
      expect(times).toEqual(times.toSorted((a, b) => a - b));
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

  describe('a read that asks for the lease', () => {
    const readOrLease = (on: CacheStore, request: Partial<LeaseRequest> = {}) =>
      on.readOrLease!({ key, token: randomUUID(), lease: LONG, waits: true, ...request });
    const seen = async (on: CacheStore, request?: Partial<LeaseRequest>) => {
      const answer = await readOrLease(on, request);
      return Buffer.isBuffer(answer) ? answer.toString() : answer.status;
    };

    it('gets the value, and no lease', async () => {
      await set('there');
      expect(await seen(other)).toBe('there');
      expect((await store.inspect(key)).lease).toBeNull();
    });

    it('gets the bytes as they were stored, also of several values at once', async () => {
      const bytes = [...Array(256).keys()];
      const keys = Array.from({ length: 60 }, (_, index) => `{${key}}:${index}`);
      const dataOf = (index: number) => Buffer.from([index, ...bytes]);
      await Promise.all(keys.map(async (each, index) => index % 3 !== 0 && set(dataOf(index), each)));
      const found = await Promise.all(keys.map((each) => readOrLease(other, { key: each })));
      for (const [index, each] of found.entries()) {
        if (index % 3 !== 0) expect(each).toEqual(dataOf(index));
        else expect(each).toMatchObject({ status: 'leased' });
      }
    });

    it('gets the lease where there is no value, and may ask twice', async () => {
      const token = randomUUID();
      const first = await readOrLease(store, { token });
      expect(first).toEqual({ status: 'leased', at: expect.any(Number) });
      expect(await seen(store, { token })).toBe('leased');
      expect(await seen(other)).toBe('busy');
      expect(await statusOf(other)).toBe('busy');
      expect(await commit(token)).toBe(true);
      expect(await seen(other)).toBe('loaded');
      expect(await seen(store, { token })).toBe('loaded');
    });

    it('learns how long the lease of another load runs, and when that ends', async () => {
      const token = await begin({ lease: 5_000 });
      const answer = await readOrLease(other);
      expect(answer).toEqual({ status: 'busy', remaining: expect.any(Number) });
      expect((answer as { remaining: number }).remaining).toBeLessThanOrEqual(5_000);
      await commit(token);
      await toHear(`ended ${key}`);
    });

    it('is fenced by a change', async () => {
      const token = randomUUID();
      expect(await seen(store, { token })).toBe('leased');
      await other.invalidate({ key });
      expect(await commit(token)).toBe(false);
      expect(await seen(other)).toBe('leased');
    });

    it('finds a barrier, also beside others that find none', async () => {
      const near = `{${key}}:near`;
      await raise('write');
      const answers = await Promise.all([seen(other), seen(other, { key: near }), seen(other)]);
      expect(answers).toEqual(['barrier', 'leased', 'barrier']);
      await other.invalidate({ key, lift: 'write' });
      expect(await seen(other)).toBe('leased');
    });

    it('is one at a time', async () => {
      const answers = await Promise.all([store, other].flatMap((each) => Array.from({ length: 20 }, () => seen(each))));
      expect(answers.filter((each) => each === 'leased')).toHaveLength(1);
      expect(answers.filter((each) => each === 'busy')).toHaveLength(39);
    });

    it('goes together with a refresh of the same value', async () => {
      await set('there');
      const token = randomUUID();
      const [found, refresh, plain] = await Promise.all([
        seen(store),
        statusOf(store, { token, refresh: true, seen: 'there' }),
        statusOf(store),
      ]);
      expect([found, refresh, plain]).toEqual(['there', 'leased', 'hit']);
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

    it.each(changes)('by %s wakes the callers that wait for that load', async (_, change) => {
      await begin();
      expect(await statusOf(store)).toBe('busy');
      const woken = [`ended ${key}`, `invalidated ${key}`, `prefix ${key.slice(0, 30)}`, 'prefix '];
      const before = ours.heard.length;
      await change();
      await eventually(() => ours.heard.slice(before).some((message) => woken.includes(message)));
    });

    it('fences the load before it, and not the one after it', () =>
      CACHE_CASES['fences the load before it, and not the one after it'](store, other, key));

    it('leaves nothing of a value that it invalidates', () =>
      CACHE_CASES['leaves nothing of a value that it invalidates'](store, other, key));

    it('is published to every process, even if there was no value', async () => {
      await other.invalidate({ key });
      await toHear(`invalidated ${key}`);
      await store.set({ key: `${key}:set`, data: 'x', ttl: LONG });
      await toHear(`invalidated ${key}:set`);
    });

    it('arrives in order', async () => {
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
    ])('is published to the waiters when it %s', async (_, end) => {
      const token = await begin();
      expect(await statusOf(other)).toBe('busy');
      await end(token);
      await eventually(() => theirs.heard.includes(`ended ${key}`));
    });

    it('is published although the load renewed its lease meanwhile', async () => {
      const token = await begin({ lease: 5_000 });
      expect(await statusOf(other)).toBe('busy');
      expect(await store.renew({ key, token, lease: LONG })).toBe(true);
      expect(await statusOf(store, { token })).toBe('leased');
      await store.release({ key, token });
      await eventually(() => theirs.heard.includes(`ended ${key}`));
    });

    it('is not published when nobody waits', async () => {
      const [token, next] = [await begin(), `{${key}}:next`];
      await commit(token);
      const renewed = await begin({ refresh: true });
      expect(await statusOf(other, { refresh: true, waits: false })).toBe('busy');
      await store.release({ key, token: renewed });
      await store.invalidate({ key: next });
      await toHear(`invalidated ${next}`);
      expect([...ours.heard, ...theirs.heard]).not.toContain(`ended ${key}`);
    });

    it('is not caused by a foreign release', async () => {
      const token = await begin();
      expect(await statusOf(other)).toBe('busy');
      await other.release({ key, token: randomUUID() });
      expect(await statusOf(other)).toBe('busy');
      expect(await commit(token)).toBe(true);
    });
  });

  describe('a barrier', () => {
    it('deletes the value, fences the load, and admits no load until it is lifted', async () => {
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
});
