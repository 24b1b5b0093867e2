import { etcd } from 'nest-redis-lock/etcd';
import { conforms, otherProcess, type WorldKind } from '../../conformance/conforms.js';
import { endAllLeases } from '../../support/etcd-requests.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startEtcdCluster } from '../../support/servers/etcd-server.js';

/** An etcd of one member behind a proxy. */
const etcdWorld: WorldKind = {
  oneByOne: true,
  without: ['downgrade', 'keep', 'list', 'ttl'],
  faults: ['pause', 'restart', 'loseData', 'cut', 'loseReplies', 'fork', 'killSession'],
  start: async () => {
    const [server] = await startEtcdCluster(1);
    if (!server) throw new Error('the cluster has no member');
    const proxy = await FaultProxy.start(Number(new URL(server.url).port));
    return {
      open: () => etcd({ endpoints: `http://127.0.0.1:${proxy.port}` }),
      faults: {
        pause: async () => {
          server.process.pause();
          return async () => server.process.resume();
        },
        restart: async () => {
          await server.process.stop();
          await server.restart();
        },
        loseData: async () => {
          await server.process.stop();
          await server.restart({ empty: true });
        },
        cut: async () => proxy.reset(),
        fork: () => otherProcess('etcd', proxy.port),
        loseReplies: async () => {
          proxy.hold('reply');
          return async () => {
            proxy.reset();
            proxy.heal();
          };
        },
        killSession: () => endAllLeases(server.url),
      },
      stop: async () => {
        await proxy.stop();
        await server.stop();
      },
    };
  },
};

conforms('etcd', etcdWorld);
