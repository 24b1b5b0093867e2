import { randomUUID } from 'node:crypto';
import type { CacheStore, CommitRequest, InvalidateRequest } from 'nest-redis-lock/backend';
import { memoryCacheStore } from '../../lib/backends/memory/memory-cache-store.js';
import { withMembers } from '../support/open-backend.js';

const TTL = 60_000;

/** Cases for one store, as two processes see it. */
export const CACHE_CASES = {
  'fences the load before it, and not the one after it': async (store: CacheStore, other: CacheStore, key: string) => {
    const begin = async () => {
      const token = randomUUID();
      const { status } = await store.lease({ key, token, lease: TTL, refresh: false, waits: true });
      expect(status).toBe('leased');
      return token;
    };
    const commit = (token: string, data: string) => store.commit({ key, token, data, ttl: TTL });
    const read = async () => (await other.read(key))?.toString() ?? null;
    const first = await begin();
    await other.invalidate({ key });
    const second = await begin();
    expect(await commit(first, 'old')).toBe(false);
    expect(await read()).toBeNull();
    expect(await commit(second, 'new')).toBe(true);
    expect(await commit(first, 'old')).toBe(false);
    expect(await read()).toBe('new');
  },

  'leaves nothing of a value that it invalidates': async (store: CacheStore, other: CacheStore, key: string) => {
    for (const by of [store, other]) {
      await store.set({ key, data: 'old', ttl: TTL });
      await by.invalidate({ key });
      expect(await other.read(key)).toBeNull();
      expect(await store.read(key)).toBeNull();
    }
  },
} as const;

/** A cache store that is wrong in one point, and the case that fails on it. */
interface WrongCacheStore {
  readonly guarantee: 'fill' | 'outdated';
  readonly what: string;
  readonly fails: keyof typeof CACHE_CASES;
  readonly lies: (honest: CacheStore) => Partial<CacheStore>;
  readonly saying: RegExp;
}

export const WRONG_CACHE_STORES: readonly WrongCacheStore[] = [
  {
    guarantee: 'fill',
    what: 'stores what a load has found, whatever was invalidated meanwhile',
    fails: 'fences the load before it, and not the one after it',
    lies: (honest) => ({
      commit: async ({ key, data, ttl }: CommitRequest) => (await honest.set({ key, data, ttl }), true),
    }),
    saying: /Expected: false/,
  },
  {
    guarantee: 'outdated',
    what: 'ends the loads of a value that is invalidated, and keeps the value',
    fails: 'leaves nothing of a value that it invalidates',
    lies: (honest) => ({
      invalidate: async (request: InvalidateRequest) => {
        const data = await honest.read(request.key);
        const answer = await honest.invalidate(request);
        if (data) await honest.set({ key: request.key, data, ttl: TTL });
        return answer;
      },
    }),
    saying: /Received: \{"data"/,
  },
];

export function wrongCacheStore({ lies }: WrongCacheStore): CacheStore {
  const honest = memoryCacheStore();
  return withMembers(honest, lies(honest));
}
