// What loading the package costs on top of Nest, here and in another built checkout, in turns:
//   node test/bench/import-cost.mjs <other checkout> [runs]
// Each figure is the processor time (ms) that a fresh process takes to load it after reflect-metadata, @nestjs/common
// and @nestjs/core.
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import Table from 'cli-table3';
import { median } from './figures.mjs';

const HERE = fileURLToPath(new URL('../..', import.meta.url));
const NEST = ['reflect-metadata', '@nestjs/common', '@nestjs/core'];
const PROGRAM = fileURLToPath(import.meta.url);

if (process.argv[2] === '--load') await load(...process.argv.slice(3));
else compare(resolve(process.argv[2] ?? '.'), Number(process.argv[3] ?? 15));

/** As a package of the checkout that has this name: its package.json says which file that is. */
async function load(how, checkout) {
  const require = createRequire(`${checkout}/package.json`);
  const loadOne = how === 'require' ? (path) => require(path) : (path) => import(pathToFileURL(path).href);
  for (const name of NEST) await loadOne(require.resolve(name));
  await sleep(20);
  const entry = `${checkout}/${targetOf(require('./package.json'), how)}`;
  const before = process.cpuUsage();
  await loadOne(entry);
  const { user, system } = process.cpuUsage(before);
  console.log((user + system) / 1_000);
  process.exit();
}

/** The file that Node.js takes for the name of the package. */
function targetOf({ exports }, how) {
  const conditions = exports['.'];
  return (conditions['module-sync'] ?? conditions[how]).default;
}

function compare(other, runs) {
  const rows = ['import', 'require'].flatMap((how) => [HERE, other].map((checkout) => ({ how, checkout, times: [] })));
  for (let run = 0; run < runs; run++) for (const row of rows) row.times.push(measure(row));
  const table = new Table({
    head: ['', 'checkout', 'median', 'least'],
    style: { head: [], border: [], compact: true },
  });
  for (const { how, checkout, times } of rows)
    table.push([how, checkout, ...[median(times), Math.min(...times)].map((ms) => ms.toFixed(0))]);
  console.log(table.toString());
}

function measure({ how, checkout }) {
  return Number(execFileSync(process.execPath, [PROGRAM, '--load', how, checkout], { encoding: 'utf8' }));
}
