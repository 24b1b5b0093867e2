import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { CacheService, CountDownLatch, LeaderElection, LockService, SemaphoreService } from 'nest-redis-lock';
import { startObservedShop, useEachFeature, type ObservedApp } from '../../support/observed-shop.js';
import { eventually } from '../../support/eventually.js';
import { requirePromtool, startPrometheus, type PrometheusServer } from '../../support/servers/prometheus-server.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { removeDirectory, temporaryDirectory } from '../../support/servers/temporary-directory.js';

const run = promisify(execFile);
const OPERATIONS = new URL('../../../docs/operations/', import.meta.url);
const RULES = fileURLToPath(new URL('alerts.yml', OPERATIONS));

it('promtool accepts the rules', async () => {
  const { stdout } = await run(requirePromtool(), ['check', 'rules', RULES]);
  expect(stdout).toMatch('SUCCESS: 19 rules found');
});

it('each alert fires on the series of its fault, and none on those of healthy processes', async () => {
  const directory = temporaryDirectory();
  try {
    const tests = await readFile(new URL('alerts.test.yml', import.meta.url), 'utf8');
    const file = join(directory, 'alerts.test.yml');
    await writeFile(file, tests.replace('[ALERTS]', JSON.stringify([RULES])));
    const { stdout } = await run(requirePromtool(), ['test', 'rules', file]);
    expect(stdout).toMatch('SUCCESS');
  } finally {
    removeDirectory(directory);
  }
});

/** The rules with shorter windows and waits, so that a fault of seconds fires them. */
async function shortened(): Promise<string> {
  const rules = await readFile(RULES, 'utf8');
  return rules
    .replaceAll(/\[\d+[mh]\]/g, '[15s]')
    .replaceAll(/^ +for: .*\n/gm, '')
    .replace(/(nest_redis_lock_wait_seconds_bucket.*) > 5$/m, '$1 > 0.1')
    .replace(/(nest_redis_lock_watchdog_lag_seconds_bucket.*) > 1$/m, '$1 > 0.1');
}

/** Shows the metrics of an application on a free port. */
async function serveMetrics({ registry }: ObservedApp) {
  const server = createServer((_request, response) => {
    void registry.metrics().then((text) => response.setHeader('content-type', registry.contentType).end(text));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = async () => {
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  };
  return { target: `127.0.0.1:${(server.address() as AddressInfo).port}`, [Symbol.asyncDispose]: close };
}

/** With values for its variables. */
async function queriesOfTheDashboard(): Promise<readonly string[]> {
  const dashboard = await readFile(new URL('grafana/nest-redis-lock.json', OPERATIONS), 'utf8');
  const { panels } = JSON.parse(dashboard) as { panels: { targets?: { expr: string }[] }[] };
  const queries = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  expect(queries.length).toBeGreaterThan(60);
  return queries.map((query) => query.replaceAll('$job', '.*').replaceAll(/\$__(rate_interval|range)/g, '15s'));
}

/** What goes wrong while Redis is there: busy locks, lost holds, failing methods, wrong keys, two leaders. */
async function cause({ app, shop }: ObservedApp): Promise<void> {
  const locks = app.get(LockService);
  const order = await locks.acquire('order:2');
  await shop.ship(2).catch(() => {});
  await order.release();
  const taken = await locks.acquire('slow:2');
  const waiting = shop.shipInTurn(2);
  await sleep(300);
  await locks.forceRelease('slow:2');
  await waiting;
  await taken.release().catch(() => {});
  const permit = await app.get(SemaphoreService).acquire('report:2', { permits: 1 });
  await shop.report(2).catch(() => {});
  await permit.release();
  await shop.nightly(-1).catch(() => {});
  await shop.weekly();
  await shop.product(-1).catch(() => {});
  await shop.pay(-1, 9).catch(() => {});
  await shop.pay(1, 10).catch(() => {});
}

/** What is tried while Redis is away. */
async function tryAll({ app, shop }: ObservedApp): Promise<void> {
  const tries = [
    shop.ship(1),
    shop.report(1),
    shop.nightly(1),
    shop.login('ann'),
    shop.charge('visa'),
    shop.pay(3, 9),
    shop.product(1),
    app.get(CountDownLatch).await('import', { wait: 0 }),
    app.get(CacheService).invalidate('product:1'),
  ];
  await Promise.allSettled(tries);
}

function blockTheEventLoop(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

/** Repeats `fault` until the alerts have fired. Those that have not, after a minute, fail the test by their names. */
async function untilFired(prometheus: PrometheusServer, names: readonly string[], fault: () => Promise<void>) {
  let missing = names;
  const haveFired = async () => {
    // A busy machine may exceed the time limit of a command.
    await fault().catch(() => {});
    const firing = await prometheus.alerts();
    missing = missing.filter((name) => !firing.includes(name));
    return missing.length === 0;
  };
  await eventually(haveFired, { within: 60_000 }).catch(() => {});
  expect(missing).toEqual([]);
}

const OF_OUTAGES = [
  'NestRedisLockBackendFailing',
  'NestRedisLockRenewalsFailing',
  'NestRedisCacheBreakerOpen',
  'NestRedisCacheInvalidationsUnconfirmed',
  'NestRedisPrimitiveBackendFailing',
  'NestRedisSemaphoreLost',
  'NestRedisRateLimitWithoutRedis',
  'NestRedisNoLeader',
];

it('each alert fires at a real Prometheus while its fault is there, and each query of the dashboard answers', async () => {
  const redis = await startRedisServer();
  const options = { redis: redis.url, commandTimeout: 1_000, cache: {} };
  await using shop = await startObservedShop(options);
  await using metrics = await serveMetrics(shop);
  await using prometheus = await startPrometheus(metrics.target, await shortened());
  const locks = shop.app.get(LockService);
  await locks.acquire('schedule:weekly', { ttl: '10m', renew: false });
  await locks.acquire('renewed often', { ttl: '2s', renew: { interval: 50 }, maxHold: Infinity });
  await shop.app.get(SemaphoreService).acquire('kept', { permits: 1, ttl: '2s' });
  await useEachFeature(shop);
  await eventually(async () => (await prometheus.series('nest_redis_lock_held')) > 0);

  const alerts = [...(await readFile(RULES, 'utf8')).matchAll(/- alert: (\w+)/g)].map(([, name]) => name as string);
  {
    await using elsewhere = await startObservedShop({ ...options, prefix: 'another' });
    await eventually(() => elsewhere.app.get(LeaderElection).isLeader('restock'));
    const ofFaults = alerts.filter((name) => !OF_OUTAGES.includes(name));
    await untilFired(prometheus, ofFaults, async () => {
      blockTheEventLoop(200);
      await cause(shop);
    });
  }

  const unanswered: string[] = [];
  for (const query of await queriesOfTheDashboard()) {
    if ((await prometheus.series(query)) === 0) unanswered.push(query);
  }
  expect(unanswered).toEqual([]);

  await redis.stop();
  await untilFired(prometheus, OF_OUTAGES, () => tryAll(shop));
}, 240_000);
