import { etcd } from 'nest-redis-lock/etcd';
import { zookeeper } from 'nest-redis-lock/zookeeper';
import { startEtcdServer } from '../support/servers/etcd-server.js';
import { startZooKeeperServer } from '../support/servers/zookeeper-server.js';
import { expectWaitersInOrder } from '../support/backend-cases.js';

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
