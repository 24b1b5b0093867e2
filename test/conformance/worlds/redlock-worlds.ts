import { redlock } from 'nest-redis-lock/redlock';
import { startRedlockNodes } from '../../support/servers/redlock-nodes.js';
import type { WorldKind } from '../conforms.js';

/** Several independent Redis, which all have the same fault at the same time. */
export function redlockWorld(count: number): WorldKind {
  return {
    faults: ['pause', 'restart', 'cut', 'loseReplies'],
    start: async () => {
      const nodes = await startRedlockNodes(count);
      return {
        open: () => redlock(nodes.urls, { restartDelay: false }),
        faults: {
          pause: async () => {
            for (const { process } of nodes.servers) process.pause();
            return async () => {
              for (const { process } of nodes.servers) process.resume();
            };
          },
          restart: async () => {
            await Promise.all(nodes.servers.map((_, index) => nodes.restart(index)));
          },
          cut: async () => {
            for (const proxy of nodes.proxies) proxy.reset();
          },
          loseReplies: async () => {
            for (const proxy of nodes.proxies) proxy.hold('reply');
            return async () => {
              for (const proxy of nodes.proxies) {
                proxy.reset();
                proxy.heal();
              }
            };
          },
        },
        stop: () => nodes.stop(),
      };
    },
  };
}
