// Whether millions of locks leave anything behind: memory, keys without an expiry, handles. Needs --expose-gc.
import { Command } from 'commander';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { whole } from '../../bench/options.mjs';
import { settledMemory } from '../../bench/memory/settled-memory.mjs';
import { rounded } from '../../bench/report/rounded.mjs';
import { terminalTable } from '../../bench/report/terminal.mjs';
import { connectApplication } from '../../bench/worker/lock-service.mjs';
import { LockService } from 'nest-redis-lock';
import { ServerView } from './server-view.mjs';
import { Work } from './work.mjs';

const SLICES = 10;
/** The heap may grow by this much (MiB) from the first slice to the last. */
const FLAT = 8;
const MEBIBYTE = 2 ** 20;

const { cycles, names, cut } = new Command('npm run endurance --')
  .description('Takes locks of very many names while connections are cut, and looks for what is left behind')
  .option('--cycles <number>', 'locks to be taken and given back', whole(SLICES, 1e9), 1_000_000)
  .option('--names <number>', 'names that they are taken from', whole(1, 1e9), 1_000_000)
  .option('--cut <ms>', 'time between two cuts of a connection', whole(100, 3_600_000), 3_000)
  .allowExcessArguments(false)
  .showHelpAfterError('(--help shows the options)')
  .parse()
  .opts();

const server = await startRedisServer();
const view = new ServerView(server.port);
const problems = [];
try {
  await view.ready();
  const before = process.getActiveResourcesInfo();
  const app = await connectApplication(server.port, { cache: false });
  const work = new Work(app.get(LockService), names);
  await work.run(cycles / SLICES);
  const cutter = setInterval(() => void view.cutConnections(), cut);
  const rows = [];
  for (let slice = 1; slice <= SLICES; slice++) {
    await work.run(cycles / SLICES);
    const { heap, rss } = await settledMemory();
    rows.push({ cycles: work.cycles, heap, rss, ...(await view.memory()) });
    console.error(`${work.cycles.toLocaleString('en-US')} cycles`);
  }
  clearInterval(cutter);
  await app.close();
  console.log(tableOf(rows));
  console.log(`Calls that ended with an error, of ${work.cycles.toLocaleString('en-US')}: ${describe(work.errors)}`);

  const growth = (rows.at(-1).heap - rows[0].heap) / MEBIBYTE;
  if (growth > FLAT) problems.push(`the heap grew by ${rounded(growth)} MiB after the first slice`);
  if (work.violations > 0) problems.push(`${work.violations} times two callers were inside one lock`);
  if (work.unexpected.length > 0) problems.push(`unexpected errors: ${work.unexpected.join('; ')}`);
  const left = await view.keysLeft();
  if (left.length > 0) problems.push(`keys that are no fence are left: ${left.slice(0, 5).join(', ')}`);
  const eternal = await view.keysWithoutExpiry();
  if (eternal.length > 0) problems.push(`keys without an expiry: ${eternal.slice(0, 5).join(', ')}`);
  const handles = beyond(before, process.getActiveResourcesInfo());
  if (handles.length > 0) problems.push(`handles are left: ${handles.join(', ')}`);
} finally {
  view.close();
  await server.stop();
}
console.log(problems.length === 0 ? 'Nothing was left behind.' : `FAILED: ${problems.join('\nFAILED: ')}`);
process.exitCode = problems.length === 0 ? 0 : 1;

/** What is there now and was not before; each of a kind counts. */
function beyond(earlier, now) {
  const rest = [...earlier];
  return now.filter((kind) => {
    const place = rest.indexOf(kind);
    if (place !== -1) rest.splice(place, 1);
    return place === -1;
  });
}

function tableOf(rows) {
  return terminalTable(
    {
      title: 'Endurance',
      note: 'After each slice, with garbage collected.',
      columns: ['cycles', 'heap MiB', 'RSS MiB', 'Redis MiB', 'keys'],
      rows: rows.map(({ cycles: done, heap, rss, used, keys }) => [
        done.toLocaleString('en-US'),
        ...[heap, rss, used].map((bytes) => rounded(bytes / MEBIBYTE)),
        keys.toLocaleString('en-US'),
      ]),
      notes: [],
    },
    process.stdout.isTTY,
  );
}

function describe(errors) {
  return [...errors].map(([name, count]) => `${count} × ${name}`).join(', ') || 'none';
}
