import type { LockBackend } from 'nest-redis-lock';
import { etcd } from 'nest-redis-lock/etcd';
import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { zookeeper } from 'nest-redis-lock/zookeeper';
import { expectJobsAndLeaders, expectWaitersInOrder, processesTakeTurns } from '../support/backend-cases.js';
import { cli, cliJson } from '../support/cli.js';
import { startLockApp } from '../support/lock-app.js';
import { startEtcdServer } from '../support/servers/etcd-server.js';
import { startMariadbServer } from '../support/servers/mariadb-server.js';
import { startZooKeeperServer } from '../support/servers/zookeeper-server.js';

it('runs jobs and elects leaders on etcd', async () => {
  const server = await startEtcdServer();
  try {
    await expectJobsAndLeaders(() => etcd({ endpoints: server.url }), { keepsNames: false });
  } finally {
    await server.stop();
  }
}, 120_000);

it('runs jobs and elects leaders on MariaDB', async () => {
  const server = await startMariadbServer();
  try {
    await expectJobsAndLeaders(() => leaseTable(server.url), { keepsNames: true });
    await expectJobsAndLeaders(() => getLock(server.url), { keepsNames: false });
  } finally {
    await server.stop();
  }
}, 120_000);

it('runs jobs and elects leaders on ZooKeeper', async () => {
  const server = await startZooKeeperServer();
  try {
    const open = () => zookeeper({ servers: server.connection, sessionTimeout: 10_000 });
    await expectJobsAndLeaders(open, { keepsNames: false });
  } finally {
    await server.stop();
  }
}, 120_000);

it('shows who waits on etcd, in order', async () => {
  const server = await startEtcdServer();
  try {
    await expectWaitersInOrder(() => etcd({ endpoints: server.url }));
  } finally {
    await server.stop();
  }
}, 120_000);

it('shows who waits on ZooKeeper, in order', async () => {
  const server = await startZooKeeperServer();
  try {
    await expectWaitersInOrder(() => zookeeper({ servers: server.connection, sessionTimeout: 10_000 }));
  } finally {
    await server.stop();
  }
}, 120_000);

it.each(['mysql', 'mysql-get-lock'] as const)(
  'processes whose holders await nothing take turns on %s',
  processesTakeTurns,
);

const HOLD = { ttl: '1m' } as const;

interface Started {
  readonly url: string;
  readonly backend: LockBackend;
  stop(): Promise<unknown>;
}

const STORES: Record<string, () => Promise<Started>> = {
  mysql: async () => {
    const server = await startMariadbServer();
    return { url: server.url, backend: leaseTable(server.url), stop: () => server.stop() };
  },
  etcd: async () => {
    const server = await startEtcdServer();
    return { url: server.url, backend: etcd({ endpoints: server.url }), stop: () => server.stop() };
  },
  zookeeper: async () => {
    const server = await startZooKeeperServer();
    const servers = server.connection;
    return { url: servers, backend: zookeeper({ servers, sessionTimeout: 10_000 }), stop: () => server.stop() };
  },
};

it.each(Object.keys(STORES))(
  'the command line shows and releases a lock on %s, and says that it cannot list',
  async (name) => {
    const { url, backend, stop } = await (STORES[name] as () => Promise<Started>)();
    const app = await startLockApp({ backend, label: 'web-1:4711' });
    try {
      const lock = await app.locks.acquire('order:7', HOLD);
      const at = ['--backend', name, '--url', url];
      const shown = await cliJson(['inspect', 'order:7', ...at]);
      expect(shown).toMatchObject({ code: 0, value: { owner: lock.owner, label: 'web-1:4711', pid: 4711 } });
      expect((await cli(['inspect', 'order:7', ...at])).out).toMatch(/^host +web-1 *$/m);
      const place = name === 'mysql' ? ' by leaseTable with the table "nest_redis_lock"' : '';
      const out = `Nobody holds "free"${place}\n`;
      expect(await cli(['inspect', 'free', ...at])).toEqual({ code: 1, err: '', out });

      for (const listing of [['list'], ['list', 'order:*', '--json']]) {
        const list = await cli([...listing, ...at]);
        expect(list).toMatchObject({ code: 2, out: '' });
        expect(list.err).toMatch(new RegExp(`^nest-redis-lock: .*${backend.name}.*inspect them by name\n$`));
      }

      expect(await cliJson(['release', 'order:7', ...at])).toMatchObject({ code: 0, value: { released: true } });
      expect(await app.locks.inspect('order:7')).toBeNull();
      expect((await cli(['release', 'order:7', ...at])).code).toBe(1);
      await lock.release().catch(() => {});
    } finally {
      await app.close();
      await stop();
    }
  },
  240_000,
);
