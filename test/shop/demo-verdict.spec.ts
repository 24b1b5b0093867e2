import type { ReadsResult } from '../../sample-app/demo/reads/cached-reads.js';
import { faultTable, readsTable, table } from '../../sample-app/demo/report.js';
import {
  passed as passedOf,
  verdict as verdictOf,
  type Findings,
  type StrategyResult,
} from '../../sample-app/demo/verdict.js';
import { plural } from '../../sample-app/demo/words.js';

/** A sale in which nothing went wrong. */
const SOUND: StrategyResult = {
  strategy: 'lock',
  stock: 200,
  ordered: 600,
  accepted: 200,
  outOfStock: 400,
  busy: 0,
  errors: 0,
  errorKinds: {},
  resent: 0,
  orders: 200,
  sold: 200,
  stockLeft: 0,
  oversoldBy: 0,
  soldPerSecond: 600,
  p50: 60,
  p99: 200,
  longestWait: 300,
  standstill: 20,
  invariants: { I1: true, I2: true, I3: true },
};

const READS: ReadsResult = {
  cache: 'on',
  reads: 100,
  errors: 0,
  readsPerSecond: 1,
  p50: 1,
  p99: 1,
  databaseReads: 1,
  hitRate: 0.99,
  writes: 1,
  staleReads: 0,
};

type Given = [results: readonly StrategyResult[], reads: readonly ReadsResult[], ended?: string];

const verdict = (...given: Given) => verdictOf(findings(...given));
const passed = (...given: Given) => passedOf(findings(...given));

function findings(...[results, reads, ended]: Given): Findings {
  return { results, reads, primitives: [], ...(ended !== undefined && { ended }) };
}

it.each<[string, Partial<StrategyResult>, RegExp]>([
  [
    'every order failed',
    {
      accepted: 0,
      outOfStock: 0,
      errors: 600,
      errorKinds: { '503 LOCK_BACKEND': 600 },
      orders: 0,
      sold: 0,
      stockLeft: 200,
    },
    /^FAILED: lock: 600 of 600 orders failed \(600 × 503 LOCK_BACKEND\), 200 of 200 pieces that were ordered stayed unsold\.$/,
  ],
  [
    'an order failed, though all was sold',
    { outOfStock: 399, errors: 1, errorKinds: { 'no answer': 1 } },
    /^FAILED: lock: 1 of 600 orders failed \(1 × no answer\)\.$/,
  ],
  [
    'orders were refused as busy, and pieces are left',
    { accepted: 190, outOfStock: 0, busy: 410, orders: 190, sold: 190, stockLeft: 10 },
    /^FAILED: lock: 10 of 200 pieces that were ordered stayed unsold \(410 orders refused as busy\)\.$/,
  ],
  [
    'fewer were sold than were ordered of a great stock',
    { stock: 1_000, ordered: 600, accepted: 599, orders: 599, sold: 599, stockLeft: 401, outOfStock: 0, busy: 1 },
    /1 of 600 pieces that were ordered stayed unsold \(1 order refused as busy\)/,
  ],
  [
    'too many were sold',
    { sold: 201, invariants: { ...SOUND.invariants, I1: false } },
    /201 of 200 pieces were sold \(I1\)/,
  ],
  [
    'the stock does not tell what was sold',
    { stockLeft: 3, invariants: { ...SOUND.invariants, I2: false } },
    /3 of 200 pieces are shown as left after 200 were sold \(I2\)/,
  ],
  [
    'accepted orders are missing',
    { orders: 199, invariants: { ...SOUND.invariants, I3: false } },
    /200 orders were accepted and 199 are in the database \(I3\)/,
  ],
  ['the fault came too late', { struck: false }, /^FAILED: lock: the sale was over before the fault struck\.$/],
])('fails where %s', (_, change, message) => {
  const results = [
    { ...SOUND, ...change },
    { ...SOUND, strategy: 'atomic' as const },
  ];
  expect(verdict(results, [])).toMatch(message);
  expect(verdict(results, [])).not.toContain('atomic');
  expect(passed(results, [])).toBe(false);
});

it('fails where the unprotected strategy could not be tried, and not where it sold too much', () => {
  const none = { ...SOUND, strategy: 'none' as const, sold: 600, oversoldBy: 400 };
  const oversold = { ...none, accepted: 600, orders: 600, invariants: { I1: false, I2: false, I3: true } };
  expect(passed([oversold], [])).toBe(true);
  expect(verdict([oversold, SOUND], [])).toMatch(
    /^Without protection the shop sold 600 of 200 pieces.*; lock sold what/,
  );
  expect(verdict([{ ...oversold, errors: 1, errorKinds: { ECONNRESET: 1 } }], [])).toMatch(/^FAILED: none: 1 of 600/);
});

it('fails where a read failed, was stale, or was never answered, and where the demo ended early', () => {
  expect(passed([SOUND], [READS])).toBe(true);
  expect(verdict([SOUND], [{ ...READS, errors: 2 }])).toBe('FAILED: 2 of 102 reads with the cache on failed.');
  expect(verdict([SOUND], [{ ...READS, staleReads: 2 }])).toMatch(/^FAILED: 2 of 100 reads with the cache on showed/);
  expect(verdict([SOUND], [{ ...READS, reads: 0 }])).toBe('FAILED: no read with the cache on was answered.');
  expect(verdict([SOUND], [READS], 'the demo ended after lock')).toBe('FAILED: the demo ended after lock.');
});

it('draws tables that fit into 100 columns', () => {
  const long = { ...SOUND, strategy: 'pessimistic' as const, soldPerSecond: 12_345, p50: 1_234.5, p99: 12_345.6 };
  const reads = { ...READS, reads: 123_456, databaseReads: 12_345, readsPerSecond: 23_456, p99: 1_234.5 };
  const drawn = [table([long], false), faultTable([long], false), readsTable([reads], false)].join('\n');
  expect(Math.max(...drawn.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100);
});

it('counts one thing as one', () => {
  expect([0, 1, 2].map((count) => plural(count, 'process', 'processes'))).toEqual([
    '0 processes',
    '1 process',
    '2 processes',
  ]);
});
