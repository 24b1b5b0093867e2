import { cp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startRedisServer } from '../support/servers/redis-server.js';
import { tarball, workplace } from './support/packed.js';
import { run } from './support/run.js';

const NEST = ['@nestjs/common@^12.0.0', '@nestjs/core@^12.0.0', 'reflect-metadata@^0.2.2', 'rxjs@^7.8.1'];
const TYPES = ['@types/node@^20.19.0', 'typescript@^6.0.0'];

const folder = () => workplace('without-ioredis');

beforeAll(async () => {
  await cp(fileURLToPath(new URL('without-ioredis', import.meta.url)), folder(), { recursive: true });
  await writeFile(join(folder(), 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  const options = ['--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error'];
  await run('npm', ['install', ...options, tarball(), '@redis/client@^6.0.0', ...NEST, ...TYPES], { cwd: folder() });
});

it.each(['imports.mjs', 'requires.cjs'])('%s locks in memory, and redis() says what to install', async (program) => {
  const said = await run(process.execPath, [program], { cwd: folder() });
  expect(JSON.parse(said)).toEqual({
    held: true,
    refused: true,
    message: 'Option "redis" needs the package ioredis, which is not installed: npm install ioredis',
  });
});

it('locks and caches on a client of node-redis', async () => {
  await using server = await startRedisServer();
  const said = await run(process.execPath, ['node-redis.mjs'], { cwd: folder(), env: { REDIS_URL: server.url } });
  expect(JSON.parse(said)).toEqual({ held: true, price: 12 });
});

it('compiles, and has types, where those of libraries are checked', async () => {
  const options = ['--strict', '--module', 'nodenext', '--target', 'es2022', '--lib', 'es2023,esnext.disposable,dom'];
  const tsc = join('node_modules', 'typescript', 'bin', 'tsc');
  await run(process.execPath, [tsc, '--noEmit', '--types', 'node', ...options, 'types.ts'], { cwd: folder() });
});
