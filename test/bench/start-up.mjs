// Measures how long many processes of a small Nest application take until all of them serve, with this checkout and
// with another one that is built, in turns:
//   node test/bench/start-up.mjs <other checkout> [processes] [rounds]
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import Table from 'cli-table3';
import { startRedisServer } from '../../dist-sample/servers/redis-server.js';
import { median } from './figures.mjs';

const HERE = fileURLToPath(new URL('../..', import.meta.url));
const PROGRAM = fileURLToPath(new URL('./worker/small-application.mjs', import.meta.url));

const [other = HERE, processes = '40', rounds = '3'] = process.argv.slice(2);
const rows = [
  { title: 'Nest alone', checkout: HERE, backend: 'none' },
  ...['memory', 'redis'].flatMap((backend) =>
    [HERE, resolve(other)].map((checkout) => ({ title: `with locks, ${backend}`, checkout, backend })),
  ),
].map((row) => ({ ...row, times: [], cpu: [] }));

const redis = await startRedisServer();
try {
  for (let round = 0; round < Number(rounds); round++) for (const row of rows) await start(row, Number(processes));
} finally {
  await redis.stop();
}
const head = [`until ${processes} processes serve`, 'checkout', 'median', 'least', 'processor time of one, median'];
const table = new Table({ head, style: { head: [], border: [], compact: true } });
const seconds = (ms) => `${(ms / 1_000).toFixed(1)} s`;
for (const { title, checkout, times, cpu } of rows)
  table.push([title, checkout, seconds(median(times)), seconds(Math.min(...times)), `${median(cpu).toFixed(0)} ms`]);
console.log(table.toString());

async function start({ checkout, backend, times, cpu }, count) {
  const begin = performance.now();
  const children = Array.from({ length: count }, () => fork(PROGRAM, [checkout, backend, redis.url]));
  const messages = await Promise.all(children.map((child) => once(child, 'message')));
  times.push(performance.now() - begin);
  cpu.push(...messages.map(([used]) => used));
  await Promise.all(children.map((child) => (child.kill('SIGKILL'), once(child, 'exit'))));
}
