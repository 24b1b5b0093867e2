import type { RedisServer } from '../../support/servers/redis-server.js';
import type { AppBuild, Consumer } from './consumer.js';
import { inMatrix } from './matrix.js';
import { expectAppLocks, type HttpAdapter } from './running-app.js';

/** The application compiled in one way, and run on each of the adapters. */
export function describeApp(
  build: AppBuild,
  adapters: HttpAdapter[],
  place: () => { consumer: Consumer; server: RedisServer },
): void {
  const what = `${build.type === 'module' ? 'ESM' : 'CommonJS'} app, module ${build.module}`;
  describe(`${what}, ${build.compiler}`, () => {
    let program: Promise<string> | undefined;

    it.each(adapters)('locks on %s', async (adapter) => {
      const { consumer, server } = place();
      const row = { what, uses: [build.compiler, adapter] };
      await inMatrix(consumer, row, async () => {
        program ??= consumer.compile(build);
        await expectAppLocks(await program, adapter, server);
      });
    });
  });
}
