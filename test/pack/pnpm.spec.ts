import { cp, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startRedisServer } from '../support/servers/redis-server.js';
import { tarball, workplace } from './support/packed.js';
import { run } from './support/run.js';

const ONE_CLASS = fileURLToPath(new URL('one-class', import.meta.url));
const PEERS = ['@nestjs/common@^12.0.0', '@nestjs/core@^12.0.0', 'ioredis@^6.0.0', 'reflect-metadata@^0.2.2', 'rxjs'];

/** A project without any packages. */
async function project(name: string): Promise<string> {
  const folder = workplace(name);
  await mkdir(folder);
  await writeFile(join(folder, 'package.json'), JSON.stringify({ private: true }));
  return folder;
}

it('is added by pnpm, which fails for a package that would run a script when it is installed', async () => {
  const tool = await project('pnpm-itself');
  await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', 'pnpm@12'], {
    cwd: tool,
  });
  const folder = await project('pnpm');
  const pnpm = join(tool, 'node_modules', '.bin', 'pnpm');
  const store = ['--store-dir', workplace('pnpm-store')];
  await run(pnpm, ['add', ...store, '--config.strictDepBuilds=true', tarball(), ...PEERS], { cwd: folder });

  await cp(ONE_CLASS, join(folder, 'one-class'), { recursive: true });
  await using redis = await startRedisServer();
  const said = await run(process.execPath, ['one-class/main.mjs'], { cwd: folder, env: { REDIS_URL: redis.url } });
  expect(JSON.parse(said)).toEqual({ oneClass: true, held: true });
});
