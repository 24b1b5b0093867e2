// How many files and functions of the library one call runs: a free lock, and a hit of the cache.
import { Command } from 'commander';
import Table from 'cli-table3';
import { CacheService, LockService } from 'nest-redis-lock';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { connectApplication } from '../worker/lock-service.mjs';
import { countOf, functionsOf } from './coverage.mjs';

const { functions } = new Command('npm run bench:hops --')
  .description('Counts the files and functions of the library that one call runs, on a Redis server of its own')
  .option('--functions', 'also print the names of the functions')
  .showHelpAfterError('(--help shows the options)')
  .parse()
  .opts();

const server = await startRedisServer();
try {
  const app = await connectApplication(server.port);
  const locks = app.get(LockService);
  const cache = app.get(CacheService);
  const body = async () => {};
  const loader = async () => ({ id: 1 });
  print('withLock of a free name', await functionsOf(() => locks.withLock('free', body)));
  print('getOrSet of a cached value', await functionsOf(() => cache.getOrSet('hit', loader, { ttl: '1h' })));
  await app.close();
} finally {
  await server.stop();
}

function print(title, files) {
  const table = new Table({
    head: [title, 'functions'],
    colAligns: ['left', 'right'],
    style: { head: [], border: [] },
  });
  for (const [file, names] of files) table.push([functions ? `${file}\n  ${names.join('\n  ')}` : file, names.length]);
  table.push([`${files.size} files`, countOf(files)]);
  console.log(table.toString());
}
