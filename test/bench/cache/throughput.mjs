import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { waitPercentiles, WaitRecorder } from '../figures.mjs';
import { CacheProcess } from './cache-process.mjs';
import { best, middle, tableWith, times } from './columns.mjs';
import { NEW, rowOf, TTL } from './rows.mjs';

/** In ms: short, so that a slow spell of the machine hits all. */
const SLICE = 250;
const WARM_UP = 1_000;

/**
 * Reads without pause from one process, in short slices taken in turn: a round is cut into them. `operation` is `hits`
 * (of `keys` stored keys), `coldMisses`, or `mixed`: half of the calls are the one, half the other.
 */
export function throughput({
  title,
  note,
  peers,
  operation,
  keys,
  unit = { one: 'op', many: 'ops' },
  fromMemory = false,
  ...load
}) {
  return {
    title,
    note,
    rowsFor: (chosen) => peers.filter((peer) => chosen.includes(peer)),
    turns: ({ rounds, ms }) => Math.ceil((rounds * ms) / SLICE),
    async open(peer, context) {
      const cache = await CacheProcess.open(peer, context);
      try {
        if (keys !== undefined) await cache.call('fill', { keys, prefix: peer });
        await cache.call(operation, { ...load, keys, prefix: peer, ms: WARM_UP });
      } catch (error) {
        await cache.end();
        throw error;
      }
      return cache;
    },
    async round(peer, { control, opened }) {
      await control.reset();
      const { wrongLoads = 0, ...figures } = await opened.call(operation, { ...load, keys, prefix: peer, ms: SLICE });
      if (wrongLoads > 0) throw new Error(`${wrongLoads} loader calls among the hits`);
      const { commands, cpu } = await control.statistics();
      const milliseconds = { p50: figures.p50 / 1_000, p99: figures.p99 / 1_000 };
      const latencies = fromMemory ? { p50: figures.p50, p99: figures.p99 } : milliseconds;
      return { ...figures, ...latencies, commands: commands / figures.done, redisCpu: cpu / figures.done };
    },
    table: tableWith(fromMemory ? memoryColumns() : redisColumns(unit)),
  };
}

function redisColumns({ one, many }) {
  return [
    middle(`${many}/s`, 'rate'),
    best('best', 'rate'),
    times('raw', 'rate'),
    middle('p50 ms', 'p50'),
    middle('p99 ms', 'p99'),
    middle(`µs/${one}`, 'cpu'),
    middle(`Redis µs/${one}`, 'redisCpu'),
    middle(`commands/${one}`, 'commands'),
  ];
}

function memoryColumns() {
  return [
    middle('ops/s', 'rate'),
    best('best', 'rate'),
    middle('p50 µs', 'p50'),
    middle('p99 µs', 'p99'),
    middle('µs/op', 'cpu'),
  ];
}

/** Until those have stored who do so after they have answered, in ms. */
const STORING = 20;

/** Reads what is stored. `timed`: one call in this number is timed, and the event loop gets a turn now and then. */
export async function hits(cache, { keys, callers, ms, prefix, timed = 1 }) {
  const stored = storedReader(cache, prefix, keys);
  const measured = await measure(callers, ms, async (caller, round, recorder) => {
    const first = caller * 7_919 + round * 104_729;
    for (let index = 0; index < timed; index++) {
      const begin = process.hrtime.bigint();
      await stored.read(first + index * 31);
      if (index === 0) recorder.record(Number(process.hrtime.bigint() - begin));
    }
    // A first level answers without ever leaving the queue of microtasks.
    if (timed > 1 && round % 16 === 0) await turn();
    return timed;
  });
  return { ...measured, wrongLoads: stored.loads };
}

/** Reads what nobody has read before: every call has to load. */
export async function coldMisses(cache, { callers, ms }) {
  const measured = await measure(callers, ms, async (_caller, _round, recorder) => {
    const begin = process.hrtime.bigint();
    await readNew(cache);
    recorder.record(Number(process.hrtime.bigint() - begin));
    return 1;
  });
  await sleep(STORING);
  return measured;
}

/**
 * Every other call of a caller reads what is stored, and the next one what nobody has read before. A call that gets no
 * answer in time on a busy machine loads, too.
 */
export async function mixed(cache, { keys, callers, ms, prefix }) {
  const stored = storedReader(cache, prefix, keys);
  const measured = await measure(callers, ms, async (caller, round, recorder) => {
    const begin = process.hrtime.bigint();
    if ((caller + round) % 2 === 0) await stored.read(caller * 7_919 + round * 104_729);
    else await readNew(cache);
    recorder.record(Number(process.hrtime.bigint() - begin));
    return 1;
  });
  await sleep(STORING);
  return measured;
}

/** Reads the stored keys by number, and counts the calls of the loader. */
function storedReader(cache, prefix, keys) {
  const reader = {
    loads: 0,
    read: (number) => cache.getOrSet(`${prefix}:${number % keys}`, loader, { ttl: TTL }),
  };
  const loader = async () => {
    reader.loads += 1;
    return rowOf(0, NEW);
  };
  return reader;
}

let next = 0;

async function readNew(cache) {
  const id = `${process.pid}:${next++}`;
  const loader = async () => {
    await turn();
    return rowOf(id, NEW);
  };
  await cache.getOrSet(`cold:${id}`, loader, { ttl: TTL });
}

/** Lets callers do `one` again and again, which answers how many calls that were. Percentiles are in µs. */
async function measure(callers, ms, one) {
  // In ns, of which there are a thousand in what it answers.
  const recorder = new WaitRecorder();
  const cpu = process.cpuUsage();
  const begin = performance.now();
  const end = begin + ms;
  let done = 0;
  const call = async (_, caller) => {
    for (let round = 0; performance.now() < end; round++) {
      // Not in one expression: others go on counting while this waits.
      const calls = await one(caller, round, recorder);
      done += calls;
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  const elapsed = performance.now() - begin;
  const { user, system } = process.cpuUsage(cpu);
  const { p50, p99 } = waitPercentiles([recorder.encoded()]);
  return { rate: (done / elapsed) * 1_000, done, p50, p99, cpu: (user + system) / done };
}
