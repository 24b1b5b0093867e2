import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import { startRedisServer } from '../support/servers/redis-server.js';
import { ServerProcess } from '../support/servers/server-process.js';
import { tarball, workplace } from './support/packed.js';
import { run } from './support/run.js';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

/** The files of the quick start, as they stand in the README. */
async function filesOfReadme(): Promise<[path: string, text: string][]> {
  const readme = await readFile(join(REPOSITORY, 'README.md'), 'utf8');
  const blocks = readme.matchAll(/```ts\n\/\/ (src\/\S+)\n([\s\S]*?)```/g);
  return [...blocks].map(([, path = '', text = '']) => [path, text]);
}

/** The price comes from Redis once it was read, and is the one that was set. */
async function expectCached(product: string, redisUrl: string): Promise<void> {
  const keys = new Redis(redisUrl);
  try {
    const find = () => fetch(product).then((answer) => answer.json());
    expect(await Promise.all([find(), find()])).toEqual([
      { id: '7', price: 12 },
      { id: '7', price: 12 },
    ]);
    expect(await keys.keys('cache:*')).toEqual(['cache:product:7']);
    const headers = { 'content-type': 'application/json' };
    await fetch(`${product}/price`, { method: 'PUT', headers, body: JSON.stringify({ price: 15 }) });
    expect(await keys.keys('cache:*')).toEqual([]);
    expect(await find()).toEqual({ id: '7', price: 15 });
  } finally {
    keys.disconnect();
  }
}

it('works in a new application of the Nest CLI, with the files of the README pasted in', async () => {
  const folder = workplace('newcomer');
  const nest = join(REPOSITORY, 'node_modules', '@nestjs', 'cli', 'bin', 'nest.js');
  const options = ['--skip-git', '--skip-install', '--package-manager', 'npm', '--strict'];
  await run(process.execPath, [nest, 'new', 'newcomer', ...options], { cwd: workplace() });
  await run(
    'npm',
    ['install', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', tarball(), 'ioredis'],
    {
      cwd: folder,
    },
  );
  for (const file of ['app.controller.ts', 'app.controller.spec.ts', 'app.service.ts']) {
    await rm(join(folder, 'src', file));
  }
  const files = await filesOfReadme();
  const paths = files.map(([path]) => path);
  expect(paths).toEqual(
    expect.arrayContaining([
      'src/orders.controller.spec.ts',
      'src/products.service.ts',
      'src/products.service.spec.ts',
    ]),
  );
  for (const [path, text] of files) await writeFile(join(folder, path), text);

  await run('npm', ['run', 'build'], { cwd: folder });
  await run('npm', ['run', 'lint'], { cwd: folder });
  await run('npm', ['test'], { cwd: folder });

  await using redis = await startRedisServer();
  const port = String(await getPort());
  await using app = await ServerProcess.start({
    command: process.execPath,
    args: [join(folder, 'dist', 'main.js')],
    env: { REDIS_URL: redis.url, PORT: port },
    ready: async () => {
      await fetch(`http://127.0.0.1:${port}/`);
    },
  });
  const ship = () =>
    fetch(`http://127.0.0.1:${port}/orders/7/ship`, { method: 'POST' }).then((answer) => answer.text());
  const answers = await Promise.all([ship(), ship(), ship()]);
  expect(answers.toSorted()).toEqual([1, 2, 3].map((number) => `order 7 is on its way, with invoice ${number}`));
  await expectCached(`http://127.0.0.1:${port}/products/7`, redis.url);
  await app.stop();
});
