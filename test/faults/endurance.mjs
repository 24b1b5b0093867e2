// Whether millions of locks leave anything behind: memory, keys without an expiry, handles. Needs --expose-gc.
import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import { Redis } from 'ioredis';
import { LockBackendError, LockLostError, LockService, LockTimeoutError } from 'nest-redis-lock';
import { startRedisServer } from '../../dist-sample/servers/redis-server.js';
import { settledMemory } from '../bench/figures.mjs';
import { whole } from '../bench/options.mjs';
import { rounded, terminalTable } from '../bench/report.mjs';
import { connectApplication } from '../bench/worker/lock-service.mjs';

/** Queues and leases end by themselves within this time (ms) after the last caller. */
const PATIENCE = 30_000;

/** Looks into the server beside the library, and cuts its connections. */
class ServerView {
  #client;

  constructor(port) {
    this.#client = new Redis({ host: '127.0.0.1', port, lazyConnect: true });
  }

  async ready() {
    await this.#client.connect();
  }

  async cutConnections() {
    await this.#client.client('KILL', 'TYPE', Math.random() < 0.5 ? 'normal' : 'pubsub', 'SKIPME', 'yes');
  }

  async memory() {
    const info = await this.#client.info('memory');
    return { used: Number(/^used_memory:(\d+)/m.exec(info)[1]), keys: await this.#client.dbsize() };
  }

  /** Keys other than fences, once they had the time to end. */
  async keysLeft() {
    const end = performance.now() + PATIENCE;
    for (;;) {
      const left = await this.#keys((key) => !key.endsWith(':fence'));
      if (left.length === 0 || performance.now() > end) return left;
      await sleep(1_000);
    }
  }

  async keysWithoutExpiry() {
    const keys = await this.#keys(() => true);
    const eternal = [];
    for (let first = 0; first < keys.length; first += 1_000) {
      const batch = keys.slice(first, first + 1_000);
      const pipeline = this.#client.pipeline();
      for (const key of batch) pipeline.pttl(key);
      const answers = await pipeline.exec();
      eternal.push(...batch.filter((_, index) => answers[index][1] === -1));
    }
    return eternal;
  }

  async #keys(wanted) {
    const found = [];
    for await (const keys of this.#client.scanStream({ count: 5_000 })) found.push(...keys.filter(wanted));
    return found;
  }

  close() {
    this.#client.disconnect();
  }
}

const STEADY_CALLERS = 100;
const HOT_CALLERS = 12;
const HOT_NAMES = 20;
/** Errors that cut connections, short waits and aborts bring about. */
const EXPECTED = [LockTimeoutError, LockBackendError, LockLostError];

class Aborted extends Error {}

const hotName = () => `hot:${Math.floor(Math.random() ** 3 * HOT_NAMES)}`;

/** The ways in which callers fight for a name. */
const WAYS = [
  (locks, name, body) => {
    const abort = new AbortController();
    setTimeout(() => abort.abort(new Aborted()), Math.random() * 15);
    return locks.withLock(name, { signal: abort.signal }, body);
  },
  (locks, name, body) => locks.withLock(name, { wait: 1 + Math.floor(Math.random() * 30) }, body),
  (locks, name, body) => locks.withLock([name, hotName(), hotName()], { wait: 500 }, body),
  (locks, name, body) => locks.withLock(name, { order: 'fifo', wait: 50 }, body),
  async (locks, name) => (await locks.tryAcquire(name))?.release(),
  (locks, name, body) => locks.withLock(name, { ttl: 150, renew: false, wait: 500 }, body),
  (locks, name, body) => locks.withLock(name, { ttl: 300, wait: 800 }, body),
  (locks, name) => locks.withLock(name, { wait: 800 }, () => locks.withLock(hotName(), { wait: 20 }, async () => {})),
  // Never given back: the lease ends it.
  (locks, _name, _body, cycle) => locks.acquire(`dropped:${cycle % 1_000}`, { ttl: 200, renew: false, wait: 0 }),
];

/** Callers that take each of many names, beside others that fight for a few in every way there is. */
class Work {
  cycles = 0;
  violations = 0;
  errors = new Map();
  unexpected = [];
  #inside = new Set();
  #turn = 0;

  constructor(locks, names) {
    this.locks = locks;
    this.names = names;
  }

  async run(cycles) {
    const end = this.cycles + cycles;
    const go = async (one) => {
      while (this.cycles < end) {
        this.cycles += 1;
        await this.#counted(one);
      }
    };
    await Promise.all([
      ...Array.from({ length: STEADY_CALLERS }, () => go(() => this.#steady())),
      ...Array.from({ length: HOT_CALLERS }, () => go(() => this.#contended())),
    ]);
  }

  async #counted(one) {
    try {
      await one();
    } catch (error) {
      const { name } = error.constructor;
      this.errors.set(name, (this.errors.get(name) ?? 0) + 1);
      if (error instanceof Aborted || EXPECTED.some((expected) => error instanceof expected)) return;
      if (this.unexpected.length < 5) this.unexpected.push(String(error));
    }
  }

  #steady() {
    const name = `order:${(this.cycles * 7_919) % this.names}`;
    return this.locks.withLock(name, { wait: 2_000 }, async () => {});
  }

  async #contended() {
    const name = hotName();
    const body = (lock) => this.#alone(name, lock);
    await WAYS[this.#turn++ % WAYS.length](this.locks, name, body, this.cycles);
  }

  /** A second caller that is inside while the first still trusts its lock is a violation. */
  async #alone(name, lock) {
    const other = [...this.#inside].find((each) => each.name === name && each.lock.held);
    if (other) this.violations += 1;
    const here = { name, lock };
    this.#inside.add(here);
    try {
      await sleep(1);
    } finally {
      this.#inside.delete(here);
    }
  }
}

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
