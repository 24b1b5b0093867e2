import { randomUUID } from 'node:crypto';
import type { CacheStore, LeaseRequest } from '../../lib/contracts/cache-store.js';
import { cacheStores, type OpenCacheStore } from '../support/cache-stores.js';
import { eventually } from '../support/eventually.js';
import { RecordingCacheListener } from '../support/recording-cache-listener.js';

/** Long enough (ms) that nothing which a test does not wait for ends by itself. */
export const LONG = 60_000;

let opened: OpenCacheStore;

export let store: CacheStore;

export let other: CacheStore;

export let key: string;

export let ours: RecordingCacheListener;

export let theirs: RecordingCacheListener;

export const set = (data: string | Buffer, of = key) => store.set({ key: of, data, ttl: LONG });

export const commit = (token: string, data = 'loaded', of = key) => store.commit({ key: of, token, data, ttl: LONG });

export const read = async (of = key) => (await other.read(of))?.toString() ?? null;

export const ask = (on: CacheStore, request: Partial<LeaseRequest> = {}) =>
  on.lease({ key, token: randomUUID(), lease: LONG, refresh: false, waits: true, ...request });

export const statusOf = async (on: CacheStore, request?: Partial<LeaseRequest>) => (await ask(on, request)).status;

export const raise = (token: string, ttl = LONG) => store.invalidate({ key, barrier: { token, ttl } });

export const toHear = (message: string) =>
  eventually(() => [ours, theirs].every(({ heard }) => heard.includes(message)));

/** The token of a load that has the lease. */
export async function begin(request: Partial<LeaseRequest> = {}): Promise<string> {
  const token = randomUUID();
  expect(await statusOf(store, { token, ...request })).toBe('leased');
  return token;
}

/** Puts bits under the key. */
export async function rebuild(positions: readonly number[], ttl = LONG): Promise<void> {
  const token = randomUUID();
  expect(await store.bits.beginRebuild({ key, token, lease: LONG, size: 1_000 })).toBe(true);
  expect(await store.bits.addToRebuild({ key, token, lease: LONG, positions })).toBe(true);
  expect(await store.bits.finishRebuild({ key, token, ttl })).toBe(true);
}

/** Runs the cases on every cache store. */
export function eachCacheStore(cases: (kind: (typeof cacheStores)[number]) => void): void {
  describe.each(cacheStores)('the cache store $name', ({ name, open, ownsConnection }) => {
    beforeAll(async () => {
      opened = await open();
      ({ store, other } = opened);
      [ours, theirs] = [new RecordingCacheListener(), new RecordingCacheListener()];
      store.listen(ours);
      other.listen(theirs);
      await eventually(() => [ours, theirs].every(({ heard }) => heard.includes('connected')));
    });
    beforeEach(() => {
      key = randomUUID();
    });
    afterAll(() => opened.close());
    cases({ name, open, ownsConnection });
  });
}
