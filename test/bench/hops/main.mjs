// How many files and functions of the library one call runs, for the calls that applications make most.
import 'reflect-metadata';
import { Command } from 'commander';
import Table from 'cli-table3';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { countOf, functionsOf } from './coverage.mjs';
import { openTrips } from './trips.mjs';

const { functions, json } = new Command('npm run bench:hops --')
  .description('Counts the files and functions of the library that one call runs, on a Redis server of its own')
  .option('--functions', 'also print the names of the functions, by file')
  .option('--json', 'print JSON instead of tables')
  .showHelpAfterError('(--help shows the options)')
  .parse()
  .opts();

const results = [];
const server = await startRedisServer();
try {
  const { trips, close } = await openTrips(server.port);
  for (const { title, call, ...options } of trips) results.push({ title, files: await functionsOf(call, options) });
  await close();
} finally {
  await server.stop();
}

if (json) console.log(JSON.stringify(results.map(asJson)));
else {
  const head = ['', 'files', 'functions'];
  const rows = results.map(({ title, files }) => [title, files.size, countOf(files)]);
  print(head, rows);
  if (functions)
    for (const { title, files } of results)
      print(
        [title, 'functions'],
        Array.from(files, ([file, names]) => [`${file}\n  ${names.join('\n  ')}`, names.length]),
      );
}

function asJson({ title, files }) {
  const counts = { title, files: files.size, functions: countOf(files) };
  return functions ? { ...counts, byFile: Object.fromEntries(files) } : counts;
}

function print(head, rows) {
  const colAligns = head.map((_, index) => (index === 0 ? 'left' : 'right'));
  const table = new Table({ head, colAligns, style: { head: [], border: [], compact: true } });
  table.push(...rows);
  console.log(table.toString());
}
