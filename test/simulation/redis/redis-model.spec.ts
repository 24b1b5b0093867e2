import { compareCalls } from './compare-calls.js';

describe('the model of Redis', () => {
  it('answers each command, sends each message and keeps each key as a redis-server does at the same time', async () => {
    const { commands, difference } = await compareCalls({ calls: 2_000, seed: 1 });
    expect(difference).toBeUndefined();
    expect(commands).toBeGreaterThanOrEqual(2_000);
  });

  it('is found to differ where it keeps its strings for a millisecond longer', async () => {
    const { difference } = await compareCalls({ calls: 2_000, seed: 1, lag: 1 });
    expect(difference).toMatch(/keys:|received:/);
  });
});
