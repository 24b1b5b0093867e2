import { contention } from './contention.mjs';
import { memory } from './memory.mjs';
import { names } from './names.mjs';
import { readers } from './readers.mjs';
import { renewal } from './renewal.mjs';

export const SCENARIOS = [
  contention({
    title: 'uncontended, 1 caller',
    note: 'What a lock costs when nobody else wants it: mostly round trips.',
    processes: 1,
    callers: 1,
    keys: 'own',
  }),
  contention({
    title: 'uncontended, 100 callers',
    note: 'The same with 100 callers in one process, each with keys of its own: mostly processor time.',
    processes: 1,
    callers: 100,
    keys: 'own',
  }),
  contention({
    title: 'hot key, 1 process × 100 callers',
    note: 'One key that all want. `mutex` is the limit: no Redis.',
    processes: 1,
    callers: 100,
    keys: 'hot',
  }),
  contention({
    title: 'hot key, 4 processes × 25 callers',
    note: 'One key that the callers of four processes want.',
    processes: 4,
    callers: 25,
    keys: 'hot',
  }),
  contention({
    title: 'hot key, 4 processes × 1 caller',
    note: 'One key that goes from process to process.',
    processes: 4,
    callers: 1,
    keys: 'hot',
  }),
  contention({
    title: 'hot key, hold 5 ms, 4 × 10',
    note: 'Every body takes 5 ms, in four processes with 10 callers each. The limit is `mutex` in the next table.',
    processes: 4,
    callers: 10,
    keys: 'hot',
    hold: 5,
  }),
  contention({
    title: 'hot key, hold 5 ms, 1 × 40',
    note: 'Every body takes 5 ms, in one process with 40 callers.',
    processes: 1,
    callers: 40,
    keys: 'hot',
    hold: 5,
  }),
  contention({
    title: 'hot key, hold 5 ms, 40 × 2',
    note: 'Every body takes 5 ms, in 40 processes with 2 callers each. The limit is `mutex` in the next table.',
    processes: 40,
    callers: 2,
    keys: 'hot',
    hold: 5,
    patience: 120_000,
  }),
  contention({
    title: 'hot key, hold 5 ms, 1 × 80',
    note: 'Every body takes 5 ms, in one process with 80 callers.',
    processes: 1,
    callers: 80,
    keys: 'hot',
    hold: 5,
  }),
  contention({
    title: 'hot key, hold 50 ms, 1 × 200',
    note: 'Many wait long: every body takes 50 ms, in one process with 200 callers.',
    processes: 1,
    callers: 200,
    keys: 'hot',
    hold: 50,
    patience: 120_000,
  }),
  contention({
    title: 'hot key, one slow holder, 4 × 10',
    note: 'One caller of one process holds for 50 ms, the other 39 do nothing.',
    processes: 4,
    callers: 10,
    keys: 'hot',
    slowHolder: 50,
  }),
  contention({
    title: 'zipf keys, 4 × 25',
    note: 'A thousand keys, of which few are wanted often and most are wanted seldom (Zipf, exponent 1).',
    processes: 4,
    callers: 25,
    keys: 'zipf',
  }),
  readers({
    title: 'readers and writers, hold 1 ms, 4 × 25',
    note: 'One key that the callers of four processes hold for 1 ms each. `×` is against all of them writing: the plain lock.',
    processes: 4,
    callers: 25,
    hold: 1,
  }),
  memory({
    title: 'memory, 10,000 locks',
    note: 'What one instance of ours grows by, after garbage collection, for each lock that it holds, for each caller that waits for the same lock, and for each that waits for a lock of its own.',
    locks: 10_000,
  }),
  names({
    title: 'many names, 100 callers',
    note: 'A free lock with an empty body in one process of ours, with a new name for each cycle. The process uses more and more names, or callers of it wait for others, which a foreign client holds. Redis µs are with the heartbeats of those that wait.',
    used: [10_000, 100_000, 1_000_000],
    waited: [1_000, 10_000, 100_000],
  }),
  renewal({
    title: 'renewal, 10,000 locks',
    note: 'One instance of ours keeps locks with a lease of 3 s, renewed every second. Delays are those of its event loop, with the millisecond between two samples; script calls and Redis µs are for each lock and interval.',
    locks: 10_000,
    ttl: 3_000,
  }),
];
