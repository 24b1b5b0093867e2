import { worseOf, type ReleaseOutcome } from '../../lib/lock/grant/lease.js';

it.each<[ReleaseOutcome, ReleaseOutcome, ReleaseOutcome]>([
  ['released', 'released', 'released'],
  ['released', 'unconfirmed', 'unconfirmed'],
  ['unconfirmed', 'gone', 'gone'],
  ['taken', 'released', 'taken'],
])('a release of %s and %s is %s', async (one, other, both) => {
  expect(await worseOf(Promise.resolve(one), Promise.resolve(other))).toBe(both);
  expect(await worseOf(Promise.resolve(other), Promise.resolve(one))).toBe(both);
});
