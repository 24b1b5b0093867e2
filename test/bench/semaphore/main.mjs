// Permits of one semaphore in several processes: this library and redis-semaphore in turns, on a Redis server of their
// own. Fails where more callers were inside than there are permits.
import Table from 'cli-table3';
import { Command } from 'commander';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { jainIndex, median, waitPercentiles } from '../figures.mjs';
import { positive } from '../options.mjs';
import { PeerPackages } from '../peers/installation.mjs';
import { WorkerTeam } from '../worker/worker-process.mjs';

const PEERS = ['ours', 'redis-semaphore'];
const PATIENCE = 90_000;

const { rounds, ms, processes, callers, permits, hold, directory } = new Command('npm run bench:semaphore --')
  .description('Measures callers in several processes that take permits of one semaphore and give them back')
  .option('--rounds <number>', 'how often each library has its turn', positive, 5)
  .option('--ms <number>', 'how long one turn takes', positive, 3_000)
  .option('--processes <number>', 'processes', positive, 4)
  .option('--callers <number>', 'callers in each process', positive, 25)
  .option('--permits <number>', 'permits of the semaphore', positive, 5)
  .option('--hold <ms>', 'how long a permit is held', positive, 1)
  .option('--directory <folder>', 'where the peers are installed')
  .parse()
  .opts();

const packages = new PeerPackages(new URL('../peers/packages.json', import.meta.url));
const folder = directory ?? packages.defaultDirectory;
await packages.install([{ packages: ['redis-semaphore'] }], folder, AbortSignal.timeout(300_000));
const server = await startRedisServer();
const results = new Map(PEERS.map((peer) => [peer, []]));
const teams = new Map(PEERS.map((peer) => [peer, new WorkerTeam(processes, PATIENCE + ms)]));
try {
  const settings = { port: server.port, directory: folder, callers, permits, hold, ms };
  for (const [peer, team] of teams) {
    const each = Array.from({ length: processes }, () => ({ ...settings, peer }));
    await team.prepare('semaphore', each);
  }
  // The processes go on from turn to turn. In the first turn they warm up, and it is not counted.
  for (let round = 0; round <= rounds; round++) {
    for (const [peer, team] of teams) {
      const turn = figures(await team.run());
      if (round > 0) results.get(peer).push(turn);
    }
  }
} finally {
  await Promise.all([...teams.values()].map((team) => team.end()));
  await server.stop();
}
console.log(table().toString());
const exceeded = [...results.values()].flat().some(({ most }) => most > permits);
process.exitCode = exceeded ? 1 : 0;

function figures(parts) {
  const served = parts.flatMap((part) => part.served);
  const cycles = served.reduce((total, count) => total + count, 0);
  return {
    rate: (cycles / Math.max(...parts.map(({ elapsed }) => elapsed))) * 1_000,
    fairness: jainIndex(served),
    wait: waitPercentiles(parts.map(({ waits }) => waits)),
    most: mostInside(parts),
    errors: parts.reduce((total, { errors }) => total + errors, 0),
  };
}

/** How many callers were inside at a time, in all processes. */
function mostInside(parts) {
  const steps = parts.flatMap(({ entered, left }) => [...entered.map((at) => [at, 1]), ...left.map((at) => [at, -1])]);
  steps.sort(([one, up], [other, down]) => one - other || up - down);
  let [inside, most] = [0, 0];
  for (const [, step] of steps) most = Math.max(most, (inside += step));
  return most;
}

function table() {
  const title = `${processes} × ${callers} callers, ${permits} permits, held ${hold} ms`;
  const columns = ['cycles/s', 'times redis-semaphore', 'p50 ms', 'p99 ms', 'Jain', 'most inside', 'errors'];
  const cells = new Table({
    head: [title, ...columns],
    colAligns: ['left', ...columns.map(() => 'right')],
    style: { head: [], border: [] },
  });
  const other = results.get('redis-semaphore');
  for (const [peer, turns] of results) {
    const middle = (figureOf) => median(turns.map(figureOf));
    cells.push([
      peer,
      Math.round(middle(({ rate }) => rate)),
      // Of each round, so that a slow spell of the machine counts for both.
      median(turns.map(({ rate }, round) => rate / other[round].rate)).toFixed(2),
      middle(({ wait }) => wait.p50).toFixed(1),
      middle(({ wait }) => wait.p99).toFixed(1),
      middle(({ fairness }) => fairness).toFixed(3),
      Math.max(...turns.map(({ most }) => most)),
      turns.reduce((total, { errors }) => total + errors, 0),
    ]);
  }
  return cells;
}
