// Waits for locks and holds them on the orders in the list `orders:<id>` of database 1, and records evidence there.
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';
import { say, startLockApp } from './lock-app.mjs';

const [, , port, id, ...clusterPorts] = process.argv;
const nodes = clusterPorts.map((each) => ({ host: '127.0.0.1', port: Number(each) }));
const store = nodes.length > 0 ? { redis: new Cluster(nodes) } : {};
const { locks } = await startLockApp(store, { shutdownHooks: false });
const evidence = new Redis({ host: '127.0.0.1', port: Number(port), db: 1, retryStrategy: null });
const orders = evidence.duplicate();
// The parent process is gone.
for (const client of [evidence, orders]) client.on('error', () => {}).on('close', () => process.exit(3));

const note = (what) => evidence.rpush('findings', `${id}: ${what}`);

/** One hold, of which the order of grants is kept. */
async function take({ name, options, as, hold }) {
  try {
    const lock = await locks.acquire(name, options);
    await evidence.rpush(`grants:${name}`, as);
    if (hold === 'forever') return;
    await sleep(hold ?? 0);
    await lock.release();
  } catch (error) {
    await note(`${as}: ${error.stack}`);
  }
}

/** How long (ms) the machine may keep this process from running before that counts as a standstill. */
const STANDSTILL = 300;
let ranAt = performance.now();
setInterval(() => {
  const now = performance.now();
  if (now - ranAt > STANDSTILL) void evidence.incr('standstills');
  ranAt = now;
}, STANDSTILL / 10);

let stop = new AbortController();

/**
 * A caller that takes the lock again and again. Nobody else may be inside; tokens are kept in the order of the holds.
 */
async function contend({ name, options, as }) {
  const names = [name].flat();
  try {
    while (!stop.signal.aborted) {
      // A busy machine serves a crowd slowly.
      const lock = await locks.acquire(name, { wait: 60_000, ...options });
      const enter = [['hincrby', 'served', as, 1]];
      for (const each of names) enter.push(['incr', `inside:${each}`], ['rpush', `tokens:${each}`, lock.fencingToken]);
      const answers = await evidence.multi(enter).exec();
      if (names.some((_, i) => answers[1 + 2 * i][1] !== 1)) await note(`${as} is not alone in ${String(names)}`);
      await evidence.multi(names.map((each) => ['decr', `inside:${each}`])).exec();
      await lock.release();
    }
  } catch (error) {
    await note(`${as}: ${error.stack}`);
  }
}

say('ready');
for (;;) {
  const [, text] = await orders.blpop(`orders:${id}`, 0);
  const order = JSON.parse(text);
  if (order.take) void take(order.take);
  if (order.stop) stop.abort();
  if (!order.contend) continue;
  stop = new AbortController();
  void Promise.all(order.contend.map(contend)).then(() => evidence.rpush('ended', id));
}
