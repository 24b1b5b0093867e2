import { CacheProcess } from '../cache-process.mjs';
import { best, middle, tableWith, times } from '../columns.mjs';

/** In ms: short, so that a slow spell of the machine hits all. */
const SLICE = 250;
const WARM_UP = 1_000;

/**
 * Reads without pause from one process, in short slices taken in turn: a round is cut into them. `operation` is `hits`
 * (of `keys` stored keys) or `coldMisses`.
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
      const { loads = 0, ...figures } = await opened.call(operation, { ...load, keys, prefix: peer, ms: SLICE });
      if (loads > 0) throw new Error(`${loads} loader calls among the hits`);
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
