import { zookeeper } from 'nest-redis-lock/zookeeper';
import { conforms, otherProcess, type WorldKind } from '../../conformance/conforms.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startZooKeeperServer } from '../../support/servers/zookeeper-server.js';
import { endSession, sessionsWithNodes } from './one-zookeeper.js';

/** A standalone server behind a proxy. */
const zookeeperWorld: WorldKind = {
  without: ['acquireSeveral', 'downgrade', 'keep', 'list', 'ttl'],
  faults: ['pause', 'restart', 'cut', 'loseReplies', 'fork', 'killSession'],
  start: async () => {
    const server = await startZooKeeperServer();
    const proxy = await FaultProxy.start(server.port);
    return {
      open: () => zookeeper({ servers: `127.0.0.1:${proxy.port}`, sessionTimeout: 4_000 }),
      faults: {
        pause: async () => {
          server.process.pause();
          return async () => server.process.resume();
        },
        restart: () => server.restart(),
        cut: async () => proxy.reset(),
        fork: () => otherProcess('zookeeper', server.port),
        loseReplies: async () => {
          proxy.hold('reply');
          return async () => {
            proxy.reset();
            proxy.heal();
          };
        },
        killSession: async () => {
          for (const session of await sessionsWithNodes(server)) await endSession(server, session);
        },
      },
      stop: async () => {
        await proxy.stop();
        await server.stop();
      },
    };
  },
};

conforms('zookeeper', zookeeperWorld);
