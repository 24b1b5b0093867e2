import { LocalShares } from '../../lib/primitives/rate-limit/local-shares.js';
import type { RateLimitCounts, Taken } from '../../lib/primitives/rate-limit/rate-limit-counts.js';
import { rateLimitSettings } from '../../lib/primitives/rate-limit/rate-limit-options.js';
import { DrivenClock } from '../support/driven-clock.js';

const clock = new DrivenClock();
beforeEach(() => clock.start());
afterEach(() => clock.stop());

/** Shares of a store that answers as `answer` says, and what it was asked for. */
function sharesOf(answer: (most: number) => Omit<Taken, 'decidedBy'>) {
  const asked: number[] = [];
  const counts: Pick<RateLimitCounts, 'take'> = {
    take: async (_key, _settings, { most }) => {
      asked.push(most);
      return { ...answer(most), decidedBy: 'store' };
    },
  };
  return { shares: new LocalShares(counts as RateLimitCounts), asked };
}

it('spends no unit of a share beyond its "per"', async () => {
  const { shares, asked } = sharesOf((most) => ({ allowed: true, granted: most, used: [0] }));
  const settings = rateLimitSettings({ limit: 10, per: '1s', localShare: 5 });
  expect(await shares.take('key', settings, 5)).toMatchObject({ allowed: true, held: 4 });
  await clock.pass(999);
  expect(await shares.take('key', settings, 5)).toMatchObject({ allowed: true, held: 3 });
  expect(asked).toEqual([5]);
  await clock.pass(1);
  expect(await shares.take('key', settings, 5)).toMatchObject({ allowed: true, held: 4 });
  expect(asked).toEqual([5, 5]);
});

it('remembers a denial until the store can allow its cost, and asks for a smaller cost', async () => {
  // Of 10 units none is left; one comes back every 100 ms.
  const { shares, asked } = sharesOf(() => ({ allowed: false, granted: 0, used: [1_000_000] }));
  const settings = (cost: number) => rateLimitSettings({ limit: 10, per: '1s', cost, localShare: 5 });
  for (let call = 0; call < 3; call++) expect((await shares.take('key', settings(2), 5)).allowed).toBe(false);
  expect(asked).toHaveLength(1);
  await clock.pass(199);
  expect((await shares.take('key', settings(3), 5)).allowed).toBe(false);
  expect(asked).toHaveLength(1);
  await clock.pass(1);
  expect((await shares.take('key', settings(2), 5)).allowed).toBe(false);
  expect(asked).toHaveLength(2);
  expect((await shares.take('key', settings(1), 5)).allowed).toBe(false);
  expect(asked).toHaveLength(3);
});

it('asks once for all calls that wait while nobody counts', async () => {
  let asked = 0;
  const counts: Pick<RateLimitCounts, 'take'> = {
    take: async (): Promise<Taken> => {
      asked += 1;
      await new Promise(setImmediate);
      return { allowed: true, granted: 2, used: [0], decidedBy: 'nobody' };
    },
  };
  const shares = new LocalShares(counts as RateLimitCounts);
  const settings = rateLimitSettings({ limit: 10, per: '1h', cost: 2, onFailure: 'open', localShare: 5 });
  const taken = await Promise.all(Array.from({ length: 1_000 }, () => shares.take('key', settings, 5)));
  for (const each of taken) expect(each).toMatchObject({ allowed: true, granted: 2, decidedBy: 'nobody' });
  expect(asked).toBe(1);
});
