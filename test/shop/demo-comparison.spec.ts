import { comparisonTable, comparisonVerdict } from '../../sample-app/demo/compare/comparison-report.js';
import type { SchemeResult } from '../../sample-app/demo/compare/comparison.js';
import { schemesOf, type Scheme } from '../../sample-app/demo/compare/schemes.js';
import { compareSchemes, type ComparedScheme } from '../support/demo-comparison.js';

const SOLD = { nextSale: 3_210, soldTwice: 0, struck: '500 LOCK_LOST' };
const SALE = {
  accepted: 150,
  outOfStock: 50,
  busy: 0,
  errors: 0,
  errorKinds: {},
  resent: 0,
  orders: 150,
  sold: 150,
  stockLeft: 0,
  oversoldBy: 0,
  soldPerSecond: 123.4,
  p50: 60,
  p99: 200,
  longestWait: 300,
  standstill: 20,
  invariants: { I1: true, I2: true, I3: true },
};

/** The result of a scheme in which nothing went wrong. */
function resultOf(name: string, change: Partial<Exclude<SchemeResult, { notRun: string }>> = {}): SchemeResult {
  const [scheme] = schemesOf([name]) as [Scheme];
  const killed = { ...SOLD, struck: 'no answer' };
  return { scheme, sale: SALE, killed, frozen: SOLD, restarted: { ...SOLD, struck: 'accepted' }, ...change };
}

it('shows where naive locks fail, and that a lock of the module does not', async () => {
  const [setnx, expiring, lock] = (await compareSchemes('setnx', 'setnx-expiry', 'lock')) as [
    ComparedScheme,
    ComparedScheme,
    ComparedScheme,
  ];
  expect(setnx.killed.nextSale).toBeNull();
  expect(expiring.killed.nextSale).not.toBeNull();
  // A machine that stands still for a second can keep both orders apart in one of the two.
  expect(expiring.frozen.soldTwice + expiring.restarted.soldTwice).toBeGreaterThan(0);
  expect(lock.sale.accepted).toBeGreaterThan(0);
  expect(lock.sale.oversoldBy).toBe(0);
  expect(lock.frozen.struck).not.toBe('accepted');
  for (const { soldTwice } of [lock.killed, lock.frozen]) expect(soldTwice).toBe(0);
  for (const { nextSale } of [lock.killed, lock.frozen]) expect(nextSale).not.toBeNull();
}, 300_000);

it('fails a scheme that promises exclusion and oversold where nothing failed, and no other', () => {
  const oversold = { sale: { ...SALE, oversoldBy: 3 } };
  expect(comparisonVerdict([resultOf('none', oversold), resultOf('etcd')])).toEqual({
    passed: true,
    text: 'Where nothing failed, no scheme that promises exclusion oversold. Seen to fail: no protection oversold 3 where nothing failed.',
  });
  expect(comparisonVerdict([resultOf('none', oversold), resultOf('etcd', oversold)])).toEqual({
    passed: false,
    text: 'FAILED: where nothing failed, lock, etcd oversold 3 pieces.',
  });
});

it('names what a fault did', () => {
  const setnx = resultOf('setnx', {
    killed: { nextSale: null, soldTwice: 0, struck: 'no answer' },
    frozen: { nextSale: 10, soldTwice: 1, struck: 'accepted' },
  });
  expect(comparisonVerdict([setnx]).text).toMatch(
    /Seen to fail: SETNX was stuck after its holder was killed, oversold 1 after it was frozen\.$/,
  );
  const table = comparisonTable([setnx, resultOf('lock')], false);
  expect(table).toMatch(/│ stuck > 9 s │\s+0\.0 s │\s+3\.2 s │\n.*│\s+oversold 1 │\s+│\n/);
  expect(table).toMatch(/│\s+3\.2 s │\s+3\.2 s │\s+3\.2 s │\n.*│\s+refused │\s+│\n/);
});

it('gives a server that cannot be had one line', () => {
  const [scheme] = schemesOf(['etcd']) as [Scheme];
  const table = comparisonTable([resultOf('lock'), { scheme, notRun: 'No etcd server found.' }], false);
  expect(table).toMatch(/│ lock, etcd\s+│ not run: No etcd server found\.\s+│\n/);
  expect(Math.max(...table.split('\n').map((line) => line.length))).toBeLessThanOrEqual(120);
});
