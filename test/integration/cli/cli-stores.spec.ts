import { CacheService } from 'nest-redis-lock';
import { leaseTable } from 'nest-redis-lock/postgres';
import { cli, cliJson } from '../../support/cli.js';
import { startLockApp } from '../../support/lock-app.js';
import { startPostgresServer } from '../../support/servers/postgres-server.js';
import { startRedisCluster } from '../../support/servers/redis-cluster.js';

const HOLD = { ttl: '5m', renew: false } as const;

it('shows locks and values of a Redis Cluster with --cluster', async () => {
  const cluster = await startRedisCluster();
  const client = cluster.client();
  const app = await startLockApp({ redis: client });
  try {
    const names = Array.from({ length: 10 }, (_, index) => `name:${index}`);
    const locks = await Promise.all(names.map((name) => app.locks.acquire(name, HOLD)));
    await app.app.get(CacheService).set('value', 1, { ttl: '5m', tags: ['a', 'b'] });
    const at = ['--cluster', '--redis', cluster.servers[0]?.url ?? ''];
    const { value } = await cliJson(['list', ...at]);
    const listed = (value as { locks: { name: string }[] }).locks.map(({ name }) => name);
    expect(listed.toSorted()).toEqual(names);
    expect(await cliJson(['cache', 'inspect', 'value', ...at])).toMatchObject({ code: 0, value: { state: 'fresh' } });
    await Promise.all(locks.map((lock) => lock.release()));
  } finally {
    await app.close();
    client.disconnect();
    await cluster.stop();
  }
});

it('shows and releases a lock on PostgreSQL, and says that it cannot list', async () => {
  const server = await startPostgresServer();
  const app = await startLockApp({ backend: leaseTable(server.url) });
  try {
    const lock = await app.locks.acquire('order:7', HOLD);
    const at = ['--backend', 'postgres', '--url', server.url];
    const shown = await cliJson(['inspect', 'order:7', ...at]);
    expect(shown).toMatchObject({ code: 0, value: { owner: lock.owner } });
    const { since } = shown.value as { since: string };
    expect(Math.abs(Date.parse(since) - Date.now())).toBeLessThan(60_000);
    const list = await cli(['list', ...at]);
    expect(list).toMatchObject({ code: 2, out: '' });
    expect(list.err).toMatch(/^nest-redis-lock: .*postgres.*\n$/);
    expect(await cliJson(['release', 'order:7', ...at])).toMatchObject({ code: 0, value: { released: true } });
    expect(await app.locks.inspect('order:7')).toBeNull();
    await lock.release().catch(() => {});
    await server.stop();
    const gone = await cli(['inspect', 'order:7', ...at]);
    expect(gone).toMatchObject({ code: 3, out: '' });
    expect(gone.err).toMatch(/^nest-redis-lock: .*ECONNREFUSED.*\n$/);
  } finally {
    await app.close();
    await server.stop();
  }
});
