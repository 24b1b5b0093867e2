import {
  reportsResult,
  restocksResult,
  type ReportsPerTick,
  type RestocksByLeader,
} from '../../sample-app/demo/primitives/background-work.js';
import { importsResult, type CatalogueImports } from '../../sample-app/demo/primitives/catalogue-imports.js';
import {
  duplicatesResult,
  eagerCustomerResult,
  killedOrderResult,
  paymentsResult,
  type DuplicateOrders,
  type EagerCustomer,
  type KilledOrder,
  type PaymentsAtOnce,
} from '../../sample-app/demo/primitives/orders.js';
import { primitivesTable } from '../../sample-app/demo/report.js';
import { passed, verdict, type PrimitiveResult } from '../../sample-app/demo/verdict.js';

const counted = { ordered: 20, times: 6, stock: 120, accepted: 120, failed: 0, differing: 0 };
const DUPLICATES: DuplicateOrders = { ...counted, runs: 20, orders: 20, stockLeft: 100, payments: 20 };
const KILLED: KilledOrder = { stock: 10, status: 201, runs: 2, orders: 1, stockLeft: 9, charges: 1 };
const EAGER: EagerCustomer = { requests: 60, took: 1_000, refused: 38, failed: 0, withoutHeaders: 0, orders: 22 };
const PAYMENTS: PaymentsAtOnce = { ordered: 30, accepted: 30, mostAtOnce: 5, charges: 30 };
const IMPORTS: CatalogueImports = { imports: 15, reads: 300, besideImports: 200, mixed: 0, versions: [15] };
const REPORTS: ReportsPerTick = { processes: 3, ticks: 6, runs: [1, 1, 1, 1, 1, 1] };
const RESTOCKS: RestocksByLeader = {
  restocks: [
    { term: 7, process: 1 },
    { term: 7, process: 1 },
    { term: 9, process: 2 },
  ],
  killed: 1,
};
const SOUND = [
  duplicatesResult(DUPLICATES),
  killedOrderResult(KILLED),
  eagerCustomerResult(EAGER),
  paymentsResult(PAYMENTS),
  importsResult(IMPORTS),
  reportsResult(REPORTS),
  restocksResult(RESTOCKS),
];

const findings = (primitives: readonly PrimitiveResult[]) => ({ results: [], reads: [], primitives });

it('passes where all primitives kept what they promise', () => {
  expect(passed(findings(SOUND))).toBe(true);
  expect(verdict(findings(SOUND))).toBe(
    'once, rate-limit, semaphore, read-write-lock, scheduled-job, leader-election kept what they promise.',
  );
});

it.each<[string, PrimitiveResult, string]>([
  ['an order ran twice', duplicatesResult({ ...DUPLICATES, runs: 21 }), 'once: 21 runs of 20 orders'],
  ['an order was paid twice', duplicatesResult({ ...DUPLICATES, payments: 21 }), 'once: 21 payments of 20 orders'],
  [
    'an order was sold twice',
    duplicatesResult({ ...DUPLICATES, stockLeft: 99 }),
    'once: 20 orders and 21 pieces sold for 20 orders',
  ],
  ['a repeat was refused', duplicatesResult({ ...DUPLICATES, accepted: 119 }), 'once: 1 of 120 requests were refused'],
  ['answers differ', duplicatesResult({ ...DUPLICATES, differing: 1 }), 'once: 1 orders got differing answers'],
  [
    'a killed order was sold twice',
    killedOrderResult({ ...KILLED, orders: 2, stockLeft: 8 }),
    'once: 2 orders and 2 pieces sold for one order',
  ],
  ['nothing was killed', killedOrderResult({ ...KILLED, runs: 1 }), 'once: no second run after the process was killed'],
  ['a killed order was charged twice', killedOrderResult({ ...KILLED, charges: 2 }), 'once: 2 charges for one order'],
  [
    'a killed order is lost',
    killedOrderResult({ ...KILLED, status: 503 }),
    'once: the repeat of a killed order was answered with 503',
  ],
  [
    'a customer ordered too often',
    eagerCustomerResult({ ...EAGER, orders: 23, refused: 37 }),
    'rate-limit: 23 orders of one customer, where 22 are allowed',
  ],
  [
    'a customer was refused too early',
    eagerCustomerResult({ ...EAGER, orders: 19, refused: 41 }),
    'rate-limit: 19 orders of one customer, where at least 20 are allowed',
  ],
  ['orders failed', eagerCustomerResult({ ...EAGER, refused: 37 }), 'rate-limit: 1 of 60 orders failed otherwise'],
  [
    'a refusal lacks its headers',
    eagerCustomerResult({ ...EAGER, withoutHeaders: 1 }),
    'rate-limit: 1 answers told the customer no limit',
  ],
  [
    'too many payments came at once',
    paymentsResult({ ...PAYMENTS, mostAtOnce: 6 }),
    'semaphore: 6 payments at once, where 5 are allowed',
  ],
  [
    'the payments came one by one',
    paymentsResult({ ...PAYMENTS, mostAtOnce: 1 }),
    'semaphore: only 1 of 5 payments at once',
  ],
  [
    'an order was not paid',
    paymentsResult({ ...PAYMENTS, charges: 29 }),
    'semaphore: 30 accepted and 29 charged of 30 orders',
  ],
  [
    'a read showed half of an import',
    importsResult({ ...IMPORTS, mixed: 1 }),
    'read-write-lock: 1 of 300 reads showed half of an import',
  ],
  [
    'no read met an import',
    importsResult({ ...IMPORTS, besideImports: 0 }),
    'read-write-lock: no read came during an import',
  ],
  [
    'two imports were mixed',
    importsResult({ ...IMPORTS, versions: [14, 15] }),
    'read-write-lock: versions 14, 15 after 15 imports',
  ],
  ['a tick ran twice', reportsResult({ ...REPORTS, runs: [1, 2, 1, 1, 1, 1] }), 'scheduled-job: 7 reports for 6 ticks'],
  ['ticks were left out', reportsResult({ ...REPORTS, runs: [1] }), 'scheduled-job: only 1 of 6 ticks ran'],
  [
    'two processes restocked in one term',
    restocksResult({ ...RESTOCKS, restocks: [...RESTOCKS.restocks, { term: 9, process: 3 }] }),
    'leader-election: 1 of 2 terms had restocks of several processes',
  ],
  [
    'a leader restocked after a later one',
    restocksResult({ ...RESTOCKS, restocks: [{ term: 8, process: 3 }, ...RESTOCKS.restocks] }),
    'leader-election: 1 restocks came after those of a later leader',
  ],
  [
    'nobody took over',
    restocksResult({ ...RESTOCKS, restocks: RESTOCKS.restocks.slice(0, 2) }),
    'leader-election: nobody restocked after the leader was killed',
  ],
])('fails where %s', (_, broken, message) => {
  expect(verdict(findings([...SOUND, broken]))).toBe(`FAILED: ${message}.`);
  expect(passed(findings([...SOUND, broken]))).toBe(false);
});

it('lets an order that failed run again, and no other', () => {
  expect(duplicatesResult({ ...DUPLICATES, failed: 1, runs: 21 }).failures).toEqual([]);
  expect(duplicatesResult({ ...DUPLICATES, failed: 1, runs: 22 }).failures).toEqual(['22 runs of 20 orders']);
  expect(eagerCustomerResult({ ...EAGER, failed: 1, orders: 19, refused: 41 }).failures).toEqual([]);
});

it('draws a table that fits into 100 columns', () => {
  const lines = primitivesTable(SOUND, false).split('\n');
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(100);
  expect(lines.join('\n')).not.toContain('…');
});
