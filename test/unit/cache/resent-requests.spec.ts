import type { CacheStore } from 'nest-redis-lock/backend';
import { memoryCacheStore } from '../../../lib/backends/memory/memory-cache-store.js';
import { DrivenClock } from '../../support/driven-clock.js';
import { Gate } from '../../support/gate.js';
import { scriptedCache } from '../../support/scripted-cache.js';

const clock = new DrivenClock();
beforeEach(() => clock.start());
afterEach(() => clock.stop());

/** A store in memory. `resent`: whether its connection ends after each request, which is then sent again. */
function storeOf({ resent }: { resent: boolean }): CacheStore {
  const store = memoryCacheStore();
  let resends = 0;
  const counted = <Request, Answer>(send: (request: Request) => Answer) => {
    return (request: Request): Answer => {
      if (resent) resends += 1;
      return send(request);
    };
  };
  store.set = counted(store.set.bind(store));
  store.lease = counted(store.lease.bind(store));
  return Object.defineProperty(store, 'resends', { get: () => resends });
}

describe.each([
  ['was sent once', false],
  ['may have been sent twice', true],
])('a request that %s', (_, resent) => {
  it('to store a value: it ends when no earlier copy may be carried out any more', async () => {
    using scripted = scriptedCache({ commandTimeout: 250 }, storeOf({ resent }));
    let over = false;
    const set = scripted.cache.set('price', 1, { ttl: '1m' }).then(() => (over = true));
    await clock.pass(200);
    expect(over).toBe(!resent);
    await set;
  });

  it('for the lease of a load: without one that can be granted again, the value is not stored', async () => {
    using scripted = scriptedCache({}, storeOf({ resent }));
    const { cache } = scripted;
    const loaded = new Gate();
    const read = cache.getOrSet('price', () => loaded.opened.then(() => 1), { ttl: '1m', consistency: 'strong' });
    await clock.pass(10);
    loaded.open();
    expect(await clock.settle(read)).toBe(1);
    expect(await clock.settle(cache.get('price'))).toBe(resent ? undefined : 1);
  });
});
