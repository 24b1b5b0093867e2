import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import { startRedisServer } from '../support/servers/redis-server.js';
import { ServerProcess } from '../support/servers/server-process.js';
import { tarball, workplace } from './support/packed.js';
import { run } from './support/run.js';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

/** The files of an application, as they stand in the pages. */
async function filesOf(pages: readonly string[]): Promise<[path: string, text: string][]> {
  const texts = await Promise.all(pages.map((page) => readFile(join(REPOSITORY, page), 'utf8')));
  const blocks = texts.flatMap((text) => [...text.matchAll(/```ts\n\/\/ (src\/\S+)\n([\s\S]*?)```/g)]);
  return blocks.map(([, path = '', text = '']) => [path, text]);
}

/** The price comes from Redis once it was read, and is the one that was set. */
async function expectCached(product: string, key: string, redisUrl: string): Promise<void> {
  const keys = new Redis(redisUrl);
  try {
    const find = () => fetch(product).then((answer) => answer.json());
    expect(await Promise.all([find(), find()])).toEqual([
      { id: '7', price: 12 },
      { id: '7', price: 12 },
    ]);
    expect(await keys.keys('cache:*')).toEqual([key]);
    const headers = { 'content-type': 'application/json' };
    await fetch(`${product}/price`, { method: 'PUT', headers, body: JSON.stringify({ price: 15 }) });
    expect(await keys.keys('cache:*')).toEqual([]);
    expect(await find()).toEqual({ id: '7', price: 15 });
  } finally {
    keys.disconnect();
  }
}

const folder = () => workplace('newcomer');

beforeAll(async () => {
  const nest = join(REPOSITORY, 'node_modules', '@nestjs', 'cli', 'bin', 'nest.js');
  const options = ['--skip-git', '--skip-install', '--package-manager', 'npm', '--strict'];
  await run(process.execPath, [nest, 'new', 'newcomer', ...options], { cwd: workplace() });
  const install = ['install', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', tarball(), 'ioredis'];
  await run('npm', install, { cwd: folder() });
  await cp(join(folder(), 'src'), workplace('newcomer-made'), { recursive: true });
}, 240_000);

it.each([
  { name: 'the README', pages: ['README.md'], specs: 0, key: 'cache:price:7' },
  {
    name: 'the guide',
    pages: ['docs/guide/getting-started.md', 'docs/guide/testing.md'],
    specs: 2,
    key: 'cache:product:7',
  },
])('works in a new application of the Nest CLI, with the files of $name pasted in', async ({ pages, specs, key }) => {
  const files = await filesOf(pages);
  const paths = files.map(([path]) => path);
  expect(paths).toEqual(expect.arrayContaining(['src/app.module.ts', 'src/main.ts']));
  expect(paths.filter((path) => path.endsWith('.spec.ts'))).toHaveLength(specs);
  // Beside what the CLI made, as somebody who follows the page pastes them.
  await rm(join(folder(), 'src'), { recursive: true });
  await cp(workplace('newcomer-made'), join(folder(), 'src'), { recursive: true });
  for (const [path, text] of files) await writeFile(join(folder(), path), text);

  await run('npm', ['run', 'build'], { cwd: folder() });
  await run('npm', ['run', 'lint'], { cwd: folder() });
  if (specs > 0) await run('npm', ['test'], { cwd: folder() });

  await using redis = await startRedisServer();
  const port = String(await getPort());
  await using app = await ServerProcess.start({
    command: process.execPath,
    args: [join(folder(), 'dist', 'main.js')],
    env: { REDIS_URL: redis.url, PORT: port },
    ready: async () => {
      await fetch(`http://127.0.0.1:${port}/`);
    },
  });
  const ship = () =>
    fetch(`http://127.0.0.1:${port}/orders/7/ship`, { method: 'POST' }).then((answer) => answer.text());
  const answers = await Promise.all([ship(), ship(), ship()]);
  expect(answers.toSorted()).toEqual([1, 2, 3].map((number) => `order 7 is on its way, with invoice ${number}`));
  await expectCached(`http://127.0.0.1:${port}/products/7`, key, redis.url);
  await app.stop();
});

it('has the command line, which npx finds', async () => {
  await using redis = await startRedisServer();
  const keys = new Redis(redis.url);
  await keys.set('shop:lock:{order:7}', 'a holder', 'PX', 60_000);
  keys.disconnect();
  const go = (...args: string[]) =>
    run('npx', ['--no-install', 'nest-redis-lock', ...args], { cwd: folder(), env: { REDIS_URL: redis.url } });
  expect(JSON.parse(await go('list', '--prefix', 'shop', '--json'))).toMatchObject({
    locks: [{ name: 'order:7', owner: 'a holder' }],
  });
  expect(await go('list')).toBe('Nobody holds a lock that matches "*"\n');
});
