import { cp, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startPostgresServer, type PostgresServer } from '../support/servers/postgres-server.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';
import { Consumer } from './support/consumer.js';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const PAGES = join(HERE, '../../docs/recipes');

const pages = (await readdir(PAGES)).map((file) => file.replace(/\.md$/, ''));

/** The files that a page shows: each begins with a comment that has its path. */
async function filesOf(page: string): Promise<[path: string, text: string][]> {
  const text = await readFile(join(PAGES, `${page}.md`), 'utf8');
  const blocks = text.matchAll(/^```\w+\n(?:\/\/|#) (\S+\.\w+)\n([\s\S]*?)^```/gm);
  return Array.from(blocks, ([, path = '', code = '']) => [path, code]);
}

let consumer: Consumer;
let redis: RedisServer;
let postgres: PostgresServer;

beforeAll(async () => {
  [redis, postgres] = await Promise.all([startRedisServer(), startPostgresServer()]);
  consumer = await Consumer.install('recipes');
  await cp(join(HERE, 'recipes'), consumer.folder, { recursive: true });
  for (const page of pages) {
    for (const [path, text] of await filesOf(page)) {
      const file = join(consumer.folder, page, path);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, text);
    }
  }
  const generate = ['node_modules/prisma/build/index.js', 'generate', '--schema', 'prisma-with-fencing/prisma'];
  // Its engine for migrations would be downloaded, and is not called.
  await consumer.node(generate, { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath });
  await consumer.node(['node_modules/typescript-7/bin/tsc', '-p', '.']);
}, 480_000);

afterAll(() => Promise.all([redis.stop(), postgres.stop()]));

it.each(pages)('%s: its application does what the page says', async (page) => {
  expect(await filesOf(page)).not.toEqual([]);
  await consumer.node(['--test', '--test-timeout=60000', `${page}.mjs`], {
    NODE_OPTIONS: '',
    REDIS_URL: redis.url,
    DATABASE_URL: postgres.url,
  });
});
