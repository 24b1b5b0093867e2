import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisServer } from '../../../../dist-sample/servers/redis-server.js';
import { microseconds } from '../../clock.mjs';
import { waitPercentiles } from '../../waits.mjs';
import { withCaches } from '../cache-process.mjs';
import { middle, sum, tableWith, words } from '../columns.mjs';

const STORED = 500;
const LOST_KEYS = Array.from({ length: 50 }, (_, index) => `lost:${index}`);

/** What takes Redis away, and what brings it back: empty after a kill. Answers the server that is then there. */
const KINDS = {
  stop: {
    begin: async (server) => server.process.pause(),
    end: async (server) => {
      server.process.resume();
      return server;
    },
  },
  kill: {
    begin: (server) => server.process.kill(),
    end: ({ port }) => startRedisServer({ port }),
  },
};

/** Redis goes away for 3 s under a steady load of 200 calls a second, and 50 keys are invalidated meanwhile. */
export function outage({ title, note, peers, kind }) {
  return {
    title,
    note,
    rowsFor: (chosen) => peers.filter((peer) => chosen.includes(peer)),
    turns: () => 1,
    async round(peer, context) {
      let server = await startRedisServer();
      try {
        return await withCaches(peer, { ...context, port: server.port }, async (open) => {
          const caches = await prepare(open);
          await KINDS[kind].begin(server);
          const from = microseconds();
          await sleep(1_000);
          await caches.loaded.call('startInvalidating', { keys: LOST_KEYS });
          await sleep(2_000);
          const to = microseconds();
          server = await KINDS[kind].end(server);
          // 3 s more of load, and 3 s of silence: what has not ended then will not.
          await sleep(6_000);
          return report(caches, await open(), { from, to });
        });
      } finally {
        await server.stop();
      }
    },
    table: tableWith([
      middle('p50 ms', 'p50'),
      middle('p99 ms', 'p99'),
      middle('max ms', 'max'),
      middle('answered meanwhile %', 'answered'),
      middle('of stored keys %', 'answeredWarm'),
      sum('errors', 'errors'),
      sum('hangs', 'hangs'),
      sum('uncaught', 'uncaught'),
      words('invalidations', 'invalidations'),
      sum('lost, of 50: in Redis', 'lostInRedis'),
      sum('lost in another process', 'lostInOther'),
      middle('p99 after, ms', 'p99After'),
    ]),
  };
}

async function prepare(open) {
  const [loaded, other] = [await open(), await open()];
  await loaded.call('fill', { keys: STORED });
  for (const cache of [loaded, other]) await cache.call('storeOld', { keys: LOST_KEYS });
  await loaded.call('startCalling', { perSecond: 200, ms: 7_000, stored: STORED });
  await sleep(1_000);
  return { loaded, other };
}

/** `fresh` has nothing in its memory, so that it says what is in Redis. */
async function report({ loaded, other }, fresh, period) {
  const { waits, waitsAfter, ...figures } = await loaded.call('outageReport', period);
  const inRedis = await fresh.call('countOld', { keys: LOST_KEYS });
  const inOther = await other.call('countOld', { keys: LOST_KEYS });
  return {
    ...figures,
    ...waitPercentiles([waits]),
    p99After: waitPercentiles([waitsAfter]).p99,
    lostInRedis: inRedis.old,
    lostInOther: inOther.old,
  };
}
