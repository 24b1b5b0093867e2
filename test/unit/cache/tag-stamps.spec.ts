import { DEFAULT_ENTRY_SETTINGS } from '../../../lib/cache/options/entry-settings.js';
import { TagStamps } from '../../../lib/cache/load/tag-stamps.js';

const AT = 5_000;
const settings = { ...DEFAULT_ENTRY_SETTINGS, ttl: 2_000, tags: ['shop'] };

/** The stamp of a load whose lease is `age` ms old, with what Redis answers of its tag by then. */
function stampAfter(age: number, now: { version: number; begun: boolean }, last: number | null = null) {
  const asked: number[] = [];
  const store = {
    beginTags: (_: readonly string[], ttl: number) => (asked.push(ttl), Promise.resolve([now])),
    lastTagInvalidation: () => Promise.resolve(last),
  };
  const calls = { store, run: (_: string, __: string, call: () => Promise<unknown>) => call() };
  const stamps = new TagStamps(calls as never, { count: 0 } as never);
  const granted = { at: AT, knownAt: performance.now() - age, tagVersions: [{ version: 100 }], invalidatedTags: 0 };
  const stamp = stamps.ofLoad({ key: 'k', granted } as never, settings, [], 2_000);
  return stamp.then((made) => ({ made: made && { ...made }, asked }));
}

describe('the tags of a load', () => {
  it('are asked for once where the load was short', async () => {
    expect(await stampAfter(1_000, { version: 100, begun: true })).toEqual({ made: { shop: 100 }, asked: [] });
  });

  it('are kept for longer where Redis would forget them before the value ends', async () => {
    const { made, asked } = await stampAfter(63_000, { version: 100, begun: false });
    expect(made).toEqual({ shop: 100 });
    expect(asked[0]).toBeGreaterThan(2_000);
  });

  it('begin anew where Redis has forgotten them, and no tag was invalidated', async () => {
    expect((await stampAfter(63_000, { version: 9_000, begun: true })).made).toEqual({ shop: 9_000 });
    expect((await stampAfter(63_000, { version: 9_000, begun: true }, 8_000)).made).toBeUndefined();
  });

  it('that were invalidated since keep the value from being stored', async () => {
    expect((await stampAfter(63_000, { version: 9_000, begun: false })).made).toBeUndefined();
  });
});
