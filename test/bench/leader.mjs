// How long a leadership is vacant after its leader was killed, and after its application ended in order. A second Redis
// notes who acted as leader, and refuses steps of earlier terms. Fails where one was refused.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import Table from 'cli-table3';
import { Command } from 'commander';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../dist-sample/servers/redis-server.js';
import { median } from './figures.mjs';
import { positive } from './options.mjs';

const PROGRAM = new URL('../support/programs/leader.mjs', import.meta.url);
const CANDIDATES = 3;
/** When (ms) a leadership counts as stuck. */
const PATIENCE = 60_000;

const { terms, lease } = new Command('npm run bench:leader --')
  .description('Measures how long nobody leads after a leader was killed, and after its application ended in order')
  .option('--terms <number>', 'how many leaders are killed, and how many end', positive, 20)
  .option('--lease <ms>', 'lease of the leaders', positive, 2_000)
  .parse()
  .opts();

const [locks, outside] = await Promise.all([startRedisServer(), startRedisServer()]);
const evidence = new Redis(outside.url);
const candidates = new Map();
const vacancies = { SIGKILL: [], SIGTERM: [] };
let refused;
try {
  await Promise.all(Array.from({ length: CANDIDATES }, stand));
  let reign = await reignAfter(0);
  for (let turn = 0; turn < terms; turn++) {
    for (const [signal, times] of Object.entries(vacancies)) {
      const endedAt = await redisTime();
      const leader = candidates.get(reign.pid);
      candidates.delete(reign.pid);
      leader.kill(signal);
      reign = await reignAfter(reign.term);
      times.push((reign.since - endedAt) / 1_000);
      await stand();
    }
  }
  refused = Number(await evidence.get('refused'));
} finally {
  for (const candidate of candidates.values()) candidate.kill('SIGKILL');
  evidence.disconnect();
  await Promise.all([locks.stop(), outside.stop()]);
}
console.log(table().toString());
console.log(`steps of earlier terms: ${refused}`);
process.exitCode = refused > 0 ? 1 : 0;

async function stand() {
  const args = [locks.port, outside.port, lease].map(String);
  const candidate = fork(PROGRAM, args, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
  candidates.set(candidate.pid, candidate);
  let said = '';
  candidate.stdout.on('data', (text) => (said += text));
  while (!said.includes('ready')) await once(candidate.stdout, 'data', { signal: AbortSignal.timeout(PATIENCE) });
}

/** The first term after `term`, with when (µs of the clock of the second Redis) its leader first acted. */
async function reignAfter(term) {
  const end = performance.now() + PATIENCE;
  while (performance.now() < end) {
    const [last] = await evidence.lrange('terms', -1, -1);
    const [number, pid, since] = (last ?? '').split(' ').map(Number);
    if (number > term) return { term: number, pid, since };
  }
  throw new Error(`nobody leads ${PATIENCE} ms after term ${term}`);
}

async function redisTime() {
  const [seconds, micros] = (await evidence.time()).map(Number);
  return seconds * 1e6 + micros;
}

function table() {
  const cells = new Table({ head: [`${terms} of each, lease ${lease} ms`, 'least ms', 'median ms', 'most ms'] });
  const name = { SIGKILL: 'leader killed', SIGTERM: 'application ended' };
  for (const [signal, times] of Object.entries(vacancies)) {
    const figures = [Math.min(...times), median(times), Math.max(...times)];
    cells.push([name[signal], ...figures.map((ms) => ms.toFixed(1))]);
  }
  return cells;
}
