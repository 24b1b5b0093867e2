import type { CacheEntryOptions } from 'nest-redis-lock';
import type { CacheStore } from 'nest-redis-lock/backend';
import { memoryCacheStore } from '../../../lib/backends/memory/memory-cache-store.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { withMembers } from '../../support/open-backend.js';
import { scriptedCache } from '../../support/scripted-cache.js';

/** How long a read waits for the load of another process, on a clock that only the test drives. */

type LockOfLoads = Exclude<CacheEntryOptions['lock'], boolean | undefined>;

/** The longest time between two looks for a load whose message may be lost (ms): 250, and a quarter more by chance. */
const LONGEST_LOOK = 312.5;

const clock = new DrivenClock();
beforeEach(() => clock.start());
afterEach(() => clock.stop());

/** Reads in one process and then, during its load of `time` ms, in another one: what that gets, and when. */
async function readBoth(time: number, lock: LockOfLoads = {}, of: (store: CacheStore) => CacheStore = same) {
  const store = memoryCacheStore();
  using loading = scriptedCache({}, store);
  using waiting = scriptedCache({}, of(store));
  const begun = performance.now();
  const load = () => new Promise<string>((resolve) => setTimeout(resolve, time, 'first'));
  const options = { loaderTimeout: '1h', lock: { wait: '1h', ...lock } } as const;
  loading.cache.getOrSet('hot', load, options).catch(() => {});
  await clock.pass(1);
  const read = waiting.cache.getOrSet('hot', () => 'second', options);
  return await clock.settle(read.then((value) => ({ value, took: performance.now() - begun })));
}

const same = (store: CacheStore) => store;
const deaf = (store: CacheStore) => withMembers(store, { listen: () => {} });

describe('a read that waits for the load of another process', () => {
  it.each([
    ['shorter than its lease', 200, {}],
    ['much longer than its lease, which is renewed', 2_500, { lease: 1_000 }],
  ] as const)('ends with the message of a load that is %s', async (_, time, lock) => {
    expect(await readBoth(time, lock)).toEqual({ value: 'first', took: time });
  });

  it('ends with the next look where the message is lost', async () => {
    const { value, took } = await readBoth(200, {}, deaf);
    expect(value).toBe('first');
    expect(took).toBeLessThanOrEqual(200 + LONGEST_LOOK + 1);
  });

  it('loads as soon as the lease of a load that never ends is over', async () => {
    const { value, took } = await readBoth(600_000, { lease: 3_000, renew: false });
    expect(value).toBe('second');
    expect(took).toBeGreaterThanOrEqual(3_000);
    expect(took).toBeLessThanOrEqual(3_000 + 2);
  });
});
