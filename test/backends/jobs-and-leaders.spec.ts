import { etcd } from 'nest-redis-lock/etcd';
import { getLock, leaseTable } from 'nest-redis-lock/mysql';
import { zookeeper } from 'nest-redis-lock/zookeeper';
import { expectJobsAndLeaders } from '../support/backend-cases.js';
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
