import { Cluster } from 'ioredis';
import { RedisCacheBus } from '../../lib/backends/redis/cache/redis-cache-bus.js';
import { ScriptRunner } from '../../lib/backends/redis/connection/script-runner.js';

const LISTENER = {
  onInvalidated: () => {},
  onLoadEnded: () => {},
  onTagInvalidated: () => {},
  onPrefixInvalidated: () => {},
  onDeletionScheduled: () => {},
  onDisconnected: () => {},
  onConnected: () => {},
};

it('leaves no listener on a Cluster of the user that never had a node', () => {
  const cluster = new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true });
  const before = cluster.listenerCount('+node');
  const bus = new RedisCacheBus(new ScriptRunner(cluster), 'cache:bus');
  bus.listen(LISTENER);
  expect(cluster.listenerCount('+node')).toBe(before + 1);
  bus.close();
  expect(cluster.listenerCount('+node')).toBe(before);
  cluster.disconnect();
});
