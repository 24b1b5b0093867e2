import { setTimeout as sleep } from 'node:timers/promises';
import { startRedisServer } from '../../../dist-sample/servers/redis-server.js';
import { firstLine, microseconds, waitPercentiles, WaitRecorder } from '../figures.mjs';
import { withCaches } from './cache-process.mjs';
import { middle, sum, tableWith, words } from './columns.mjs';
import { NEW, rowOf, TTL } from './rows.mjs';

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

const LOADER_MS = 5;
/** How long (µs) after the end of the outage calls do not yet count as calls after it. */
const RECOVERY = 1_000_000;

let calls;
let calling;
let invalidations;

/**
 * Calls at a steady rate for `ms`, whatever the answers: half of the keys are stored, half are not.
 */
export function startCalling(cache, { perSecond, ms, stored }) {
  calls = [];
  calling = callSteadily(cache, perSecond, ms, stored);
}

async function callSteadily(cache, perSecond, ms, stored) {
  const begin = microseconds();
  const elapsed = () => (microseconds() - begin) / 1_000;
  while (elapsed() < ms) {
    const due = (elapsed() * perSecond) / 1_000;
    while (calls.length < due) calls.push(callOnce(cache, calls.length, stored));
    await sleep(2);
  }
}

function callOnce(cache, number, stored) {
  const call = { began: microseconds(), ended: undefined, error: undefined, warm: number % 2 === 0 };
  const key = call.warm ? `k:${number % stored}` : `cold:${process.pid}:${number}`;
  const loader = async () => {
    await sleep(LOADER_MS);
    return rowOf(number, NEW);
  };
  const end = (error) => {
    call.ended = microseconds();
    call.error = error;
  };
  Promise.resolve(cache.getOrSet(key, loader, { ttl: TTL })).then(
    () => end(),
    (error) => end(firstLine(error)),
  );
  return call;
}

/** Invalidates the keys, and does not wait for it. */
export function startInvalidating(cache, { keys }) {
  invalidations = keys.map((key) => {
    const one = { state: 'pending' };
    Promise.resolve(cache.invalidate(key)).then(
      () => (one.state = 'succeeded'),
      () => (one.state = 'failed'),
    );
    return one;
  });
}

/** What became of the calls that began while Redis was away, from `from` to `to`. What has not ended by now hangs. */
export async function outageReport(_cache, { from, to }) {
  await calling;
  const during = calls.filter(({ began }) => began >= from && began < to);
  const ended = during.filter((call) => call.ended !== undefined);
  const answered = ended.filter((call) => call.ended < to && call.error === undefined);
  const after = calls.filter((call) => call.began >= to + RECOVERY && call.ended !== undefined);
  const share = (part, whole) => (part.length / whole.length) * 100;
  const warm = ({ warm: stored }) => stored;
  return {
    answered: share(answered, during),
    answeredWarm: share(answered.filter(warm), during.filter(warm)),
    errors: ended.filter(({ error }) => error !== undefined).length,
    hangs: during.length - ended.length,
    firstError: ended.find(({ error }) => error !== undefined)?.error,
    invalidations: countStates(),
    waits: waitsOf(ended),
    waitsAfter: waitsOf(after),
  };
}

function waitsOf(ended) {
  const recorder = new WaitRecorder();
  for (const call of ended) recorder.record(call.ended - call.began);
  return recorder.encoded();
}

function countStates() {
  const counts = new Map();
  for (const { state } of invalidations) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, number]) => `${number} ${state}`).join(', ');
}
