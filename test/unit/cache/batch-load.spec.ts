import { jest } from '@jest/globals';
import type { LoaderContext } from '../../../lib/cache/load/cache-loader.js';
import { BatchLoad } from '../../../lib/cache/read/batch-load.js';

it('calls the loader with the keys in the order of the call, whichever was decided first', async () => {
  const load = jest.fn(async (keys: readonly string[]) => keys.map((key) => `value of ${key}`));
  const scopes = { within: (_keys: unknown, call: () => unknown) => call() };
  const batch = new BatchLoad(['1', '2', '3'], load, scopes as never, {} as never, '');
  const begun: (() => void)[] = [];
  const values = batch.run(async (_key, loader) => {
    await new Promise<void>((resolve) => begun.unshift(resolve));
    return loader({} as LoaderContext);
  });
  for (const begin of begun) {
    begin();
    await Promise.resolve();
  }
  expect((await values).map((each) => each.status === 'fulfilled' && each.value)).toEqual([
    'value of 1',
    'value of 2',
    'value of 3',
  ]);
  expect(load.mock.calls.map(([keys]) => keys)).toEqual([['1', '2', '3']]);
});
