import { cp, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startPostgresServer, type PostgresServer } from '../support/servers/postgres-server.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { Consumer } from './support/consumer.js';
import { moduleOfRows } from './support/migration-rows.js';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const DOCS = join(HERE, '../../docs');

const pagesIn = async (folder: string) => (await readdir(join(DOCS, folder))).map((file) => file.replace(/\.md$/, ''));
const [recipes, migrations] = await Promise.all([pagesIn('recipes'), pagesIn('migrate')]);
const tests = await readdir(join(HERE, 'recipes'));

/** The files that a page shows: each begins with a comment that has its path. */
function filesOf(text: string): [path: string, text: string][] {
  const blocks = text.matchAll(/^```\w+\n(?:\/\/|#) (\S+\.\w+)\n([\s\S]*?)^```/gm);
  return Array.from(blocks, ([, path = '', code = '']) => [path, code]);
}

let consumer: Consumer;
let redis: readonly RedisServer[];
let postgres: PostgresServer;

async function writePage(folder: string, page: string): Promise<void> {
  const text = await readFile(join(DOCS, folder, `${page}.md`), 'utf8');
  const files = filesOf(text);
  if (folder === 'migrate') files.push(['src/rows.ts', moduleOfRows(text)]);
  expect(files).not.toEqual([]);
  for (const [path, code] of files) {
    const file = join(consumer.folder, page, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, code);
  }
}

beforeAll(async () => {
  redis = await Promise.all([1, 2, 3].map(() => startRedisServer()));
  postgres = await startPostgresServer();
  consumer = await Consumer.install('recipes');
  await cp(join(HERE, 'recipes'), consumer.folder, { recursive: true });
  for (const page of recipes) await writePage('recipes', page);
  for (const page of migrations) await writePage('migrate', page);
  const generate = ['node_modules/prisma/build/index.js', 'generate', '--schema', 'prisma-with-fencing/prisma'];
  // Its engine for migrations would be downloaded, and is not called.
  await consumer.node(generate, { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath });
  await consumer.node(['node_modules/typescript-7/bin/tsc', '-p', '.']);
}, 900_000);

afterAll(() => Promise.all([...redis, postgres].map((server) => server.stop())));

const runTest = (file: string, env: object = {}) =>
  consumer.node(['--test', '--test-timeout=60000', file], {
    NODE_OPTIONS: '',
    REDIS_URL: redis[0]?.url,
    REDIS_URL_2: redis[1]?.url,
    REDIS_URL_3: redis[2]?.url,
    DATABASE_URL: postgres.url,
    ...env,
  });

it.each(recipes)('%s: its application does what the page says', async (page) => {
  await runTest(`${page}.mjs`);
});

it.each(migrations)('%s: each call in the column of this package runs', async (page) => {
  await runTest('migration-rows.mjs', { PAGE: page });
});

it.each(migrations.filter((page) => tests.includes(`${page}.mjs`)))('%s: both run beside each other', async (page) => {
  await runTest(`${page}.mjs`);
});
