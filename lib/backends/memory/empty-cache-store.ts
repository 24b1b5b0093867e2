import type {
  CacheBits,
  CacheExpiringSets,
  CacheListener,
  CacheSets,
  CacheStore,
  KeyState,
  LeaseAnswer,
  ScheduledDeletions,
  TagVersion,
} from '../../contracts/cache-store.js';
import { ownStore } from '../../contracts/store.js';
import { refusal } from './memory-cache-store.js';

/**
 * Keeps nothing and grants every lease, so a cache on it is always empty. Rejects calls for counters, sets and bits,
 * because an empty answer would be wrong.
 */
export function emptyCacheStore(): CacheStore {
  return new EmptyCacheStore();
}

class EmptyCacheStore implements CacheStore {
  readonly name = 'empty';
  readonly sets: CacheSets = { add: refuse, remove: refuse, has: refuse, members: refuse };
  readonly expiringSets: CacheExpiringSets = { ...this.sets, size: refuse };
  readonly bits: CacheBits = {
    add: refuse,
    has: refuse,
    beginRebuild: refuse,
    addToRebuild: refuse,
    finishRebuild: refuse,
    dropRebuild: refuse,
    clear: refuse,
  };
  readonly deletions: ScheduledDeletions = {
    schedule: async () => {},
    claim: async () => ({ names: [], next: null }),
    renew: async () => {},
    done: async () => {},
  };

  constructor() {
    ownStore(this);
  }

  listen(listener: CacheListener): void {
    void Promise.resolve().then(() => listener.onConnected());
  }

  read = async (): Promise<null> => null;
  lease = async (): Promise<LeaseAnswer> => ({ status: 'leased', at: 0 });
  commit = async (): Promise<boolean> => true;
  renew = async (): Promise<boolean> => true;
  release = async (): Promise<void> => {};
  invalidate = async (): Promise<boolean> => false;
  take = async (): Promise<null> => null;
  renewBarrier = async (): Promise<boolean> => true;
  set = async (): Promise<boolean> => true;
  increment = refuse;
  expire = async (): Promise<boolean> => false;
  ttl = async (): Promise<null> => null;
  inspect = async (): Promise<KeyState> => ({ value: null, lease: null, barrier: false });
  beginTags = async (tags: readonly string[]): Promise<readonly TagVersion[]> =>
    tags.map(() => ({ version: 0, begun: true }));
  readTags = async (tags: readonly string[]): Promise<readonly null[]> => tags.map(() => null);
  lastTagInvalidation = async (): Promise<number> => 0;
  invalidateTag = async (): Promise<void> => {};
  deleteMatching = async (): Promise<number> => 0;
  ping = async (): Promise<unknown> => 'PONG';
  close = (): void => {};
}

function refuse(): Promise<never> {
  return Promise.reject(refusal('the cache keeps nothing: option "cache.enabled" is false; set it to true'));
}
