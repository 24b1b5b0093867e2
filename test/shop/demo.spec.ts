import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { jest } from '@jest/globals';
import { page, type Page } from '../../sample-app/demo/html-report/page.js';
import { readOptions } from '../../sample-app/demo/options.js';
import type { ReportData } from '../../sample-app/demo/html-report/report-data.js';
import { StockHistory, type ReadsResult } from '../../sample-app/demo/reads/cached-reads.js';
import { readProducts } from '../../sample-app/demo/reads/readers.js';
import { cells, primitiveCells, readsCells, writableFile } from '../../sample-app/demo/report.js';
import { ALL_STRATEGIES, LOCK_BACKENDS, PRIMITIVES } from '../../sample-app/demo/shop-facts.js';
import type { Shop } from '../../sample-app/demo/shop.js';
import { verdict as verdictOf, type PrimitiveResult, type StrategyResult } from '../../sample-app/demo/verdict.js';
import { ALL_STRATEGIES as SHOP_STRATEGIES } from '../../sample-app/src/deduction/strategy.js';
import { LOCK_BACKENDS as SHOP_BACKENDS } from '../../sample-app/src/lock-backend.js';
import { PRIMITIVES as SHOP_PRIMITIVES } from '../../sample-app/src/settings.js';
import { madeProgram } from '../support/child.js';
import { sellWithLocksIn } from '../support/demo-sale.js';

const PROGRAM = madeProgram('dist-sample/demo/main.js');
const run = promisify(execFile);

interface DemoResult {
  settings: object;
  verdict: string;
  results: StrategyResult[];
  reads: ReadsResult[];
  primitives: PrimitiveResult[];
}

const REPORT_DATA = /<script id="report-data" type="application\/json">([^<]*)<\/script>/;

const folder = mkdtempSync(join(tmpdir(), 'demo-report-'));
afterAll(() => rmSync(folder, { recursive: true }));

/** The texts in the row of the results that starts with this name. */
function rowOf(report: string, name: string): string[] {
  const row = new RegExp(`<tr[^>]*>\\s*<th scope="row">${name}</th>.*?</tr>`, 's').exec(report)?.[0] ?? '';
  return [...row.matchAll(/<t[hd][^>]*>([^<]*)</g)].map(([, text]) => text as string);
}

describe('a run with sales, reads, primitives and a report', () => {
  const file = join(folder, 'report.html');
  let stdout: string;
  let stderr: string;
  let outcome: DemoResult;
  beforeAll(async () => {
    const sale = ['--strategy', 'none,lock', '--stock', '40', '--orders', '151', '--concurrency', '50'];
    const reads = ['--read-seconds', '3', '--readers', '12', '--read-products', '5', '--writes', '50'];
    const args = [PROGRAM, ...sale, ...reads, '--json', '--report', file];
    ({ stdout, stderr } = await run(process.execPath, args, { timeout: 200_000 }).catch(
      (failed: { stdout: string; stderr: string }) => failed,
    ));
    outcome = JSON.parse(stdout) as DemoResult;
  }, 240_000);

  it('shows that the lock sells what is there and nothing sells more', () => {
    expect(stdout.trim().split('\n')).toHaveLength(1);
    const { settings, results, verdict } = outcome;
    expect(settings).toMatchObject({ instances: 3, stock: 40, orders: 151, strategies: ['none', 'lock'] });
    const [none, lock] = results as [StrategyResult, StrategyResult];
    expect(lock).toMatchObject({
      accepted: 40,
      stockLeft: 0,
      oversoldBy: 0,
      invariants: { I1: true, I2: true, I3: true },
    });
    expect(none.invariants).not.toEqual({ I1: true, I2: true, I3: true });
    expect(none.oversoldBy).toBeGreaterThan(0);
    expect(verdict).toMatch(/sold \d+ of 40 pieces.*; lock sold what was there/);
  });

  it('reads products with and without the cache while they are sold, and sees nothing stale', () => {
    const { settings, reads, verdict } = outcome;
    expect(settings).toMatchObject({ cacheReads: true, readers: 12, readSeconds: 3, readProducts: 5, writes: 50 });
    const [off, on] = reads as [ReadsResult, ReadsResult];
    for (const result of [off, on]) {
      expect(result).toMatchObject({ errors: 0, staleReads: 0 });
      expect(result.reads).toBeGreaterThan(20);
      expect(result.writes).toBeGreaterThan(5);
      expect(result.p99).toBeGreaterThanOrEqual(result.p50);
    }
    expect(off).toMatchObject({ cache: 'off', databaseReads: off.reads, hitRate: 0 });
    expect(on.cache).toBe('on');
    expect(on.databaseReads).toBeGreaterThan(0);
    expect(on.databaseReads).toBeLessThan(on.reads);
    expect(on.hitRate).toBeCloseTo(1 - on.databaseReads / on.reads);
    expect(verdict).toMatch(/the cache answered \d+\.\d % of \d+ reads during \d+ writes/);
  });

  it('writes a report that holds all it needs', () => {
    expect(stderr).toContain(`The report is in ${file}`);
    const { results, reads, primitives, verdict } = outcome;
    expect(verdict).not.toContain('FAILED');
    const report = readFileSync(file, 'utf8');
    expect(report).toContain(`<p>${verdict}</p>`);
    expect(report).toMatch(/PASSED.*PostgreSQL<\/dt>\s*<dd>\d+\.\d+/s);
    for (const result of results) expect(rowOf(report, result.strategy)).toEqual(cells(result));
    expect(reads).toHaveLength(2);
    for (const result of reads) expect(rowOf(report, result.cache)).toEqual(readsCells(result));
    expect(primitives).toHaveLength(7);
    const others = primitives.filter(({ primitive }) => primitive !== 'once');
    for (const result of others) expect(rowOf(report, result.primitive)).toEqual(primitiveCells(result));

    expect(report).toContain(`content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"`);
    const outside = /\b(src|href)\s*=\s*["']?(https?:|\/\/|\.|\/\w)|<link|\bimport\s*[("'{*]|\burl\(|sourceMappingURL/i;
    expect(report.match(outside)).toBeNull();

    const { stock, percentiles, sales } = JSON.parse(REPORT_DATA.exec(report)?.[1] ?? '') as ReportData;
    expect(stock).toBe(40);
    expect(sales.map(({ strategy }) => strategy)).toEqual(['none', 'lock']);
    for (const [index, { course, latency }] of sales.entries()) {
      const { accepted, stockLeft, p50 } = results[index] as StrategyResult;
      expect(course[0]).toEqual({ seconds: 0, accepted: 0, stockLeft: 40 });
      expect(course.at(-1)).toMatchObject({ accepted, stockLeft });
      expect(course.some((moment) => moment.accepted > 0 && moment.accepted < accepted)).toBe(true);
      expect(latency).toHaveLength(percentiles.length);
      expect(latency[percentiles.indexOf(50)]).toBe(p50);
    }
  });
});

function resultOf(strategy: StrategyResult['strategy']): StrategyResult {
  const counts = { accepted: 1, outOfStock: 0, busy: 0, errors: 0, orders: 1, sold: 1, stockLeft: 0, oversoldBy: 0 };
  const times = { soldPerSecond: 1, p50: 1, p99: 1, longestWait: 1, standstill: 1 };
  const invariants = { I1: true, I2: true, I3: true };
  return { strategy, stock: 1, ordered: 1, ...counts, errorKinds: {}, resent: 0, ...times, invariants };
}

/** A page about nothing, but for what is given. */
function pageOf(given: Partial<Page>): string {
  const data = { stock: 1, percentiles: [50], sales: [] };
  const programs = { chartLibrary: '', charts: '' };
  return page({
    verdict: '',
    passed: true,
    results: [],
    reads: [],
    primitives: [],
    data,
    settings: {},
    versions: {},
    date: new Date(),
    ...programs,
    ...given,
  });
}

it.each([
  ['lock', true, 'PASSED'],
  ['lock', false, 'FAILED'],
  ['none', false, 'UNPROTECTED'],
] as const)('reports on %s, sound: %j, as %s', (strategy, sound, label) => {
  const result = { ...resultOf(strategy), invariants: { I1: sound, I2: true, I3: true } };
  const report = pageOf({ results: [result], passed: label !== 'FAILED' });
  expect(report).toMatch(new RegExp(`<div class="verdict ${label.toLowerCase()}">\\s*<strong>\\W*${label}</strong>`));
  expect(report.includes('<tr class="broken">')).toBe(!sound);
});

it.concurrent.each(['postgres', 'redlock'])(
  'sells what is there, and nothing twice, with its locks in %s',
  async (backend) => {
    const sound = {
      accepted: 40,
      errors: 0,
      stockLeft: 0,
      oversoldBy: 0,
      invariants: { I1: true, I2: true, I3: true },
    };
    expect(await sellWithLocksIn(backend)).toMatchObject([
      { strategy: 'lock', ...sound },
      { strategy: 'fenced', ...sound },
    ]);
  },
);

it('calls the settings of the shop by the names that the shop gives them', () => {
  expect(ALL_STRATEGIES).toEqual(SHOP_STRATEGIES);
  expect(LOCK_BACKENDS).toEqual(SHOP_BACKENDS);
  expect(PRIMITIVES).toEqual(SHOP_PRIMITIVES);
});

it('tells what is older than the last answered write', () => {
  const history = new StockHistory(10);
  history.send(9);
  expect([10, 9, 8].map((stock) => history.isStale(stock, history.answered))).toEqual([false, false, true]);
  history.answer();
  expect([10, 9].map((stock) => history.isStale(stock, history.answered))).toEqual([true, false]);
  history.send(109);
  expect([10, 9, 109].map((stock) => history.isStale(stock, 1))).toEqual([true, false, false]);
  expect(() => history.send(9)).toThrow(/A stock of 9 was there before/);
});

it('counts reads that show what was before an answered write, and only those sent after the answer', async () => {
  const history = new StockHistory(10);
  let answers = 0;
  // The write is answered while the tenth read is under way; the stock that is shown stays what it was.
  const shop = createServer((_request, response) => {
    answers += 1;
    if (answers === 10) {
      history.send(9);
      history.answer();
    }
    response.end(JSON.stringify({ stock: 10 }));
  });
  await new Promise<void>((resolve) => shop.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(shop.address() as AddressInfo).port}`;
  const load = { cache: 'on', products: [{ sku: 'cup', history }], readers: 1, seconds: 2 } as const;
  const result = await readProducts({ ...load, shops: [{ url } as Shop], onAnswer: () => {} });
  expect(result.reads).toBeGreaterThan(10);
  expect(result.staleReads).toBe(result.reads - 10);
  shop.close();
  shop.closeAllConnections();
});

it('fails where a read was stale', () => {
  const read = { cache: 'on', reads: 100, errors: 0, readsPerSecond: 1, p50: 1, p99: 1, databaseReads: 1 } as const;
  const reads = [{ ...read, hitRate: 0.99, writes: 1, staleReads: 2 }];
  const verdict = verdictOf({ results: [], reads, primitives: [] });
  expect(verdict).toMatch(/^FAILED: 2 of 100 reads with the cache on showed a stock from before/);
  const report = pageOf({ verdict, reads, passed: false });
  expect(report).toMatch(/<div class="verdict failed">\s*<strong>\W*FAILED/);
  expect(report).toContain('<tr class="broken">');
  expect(pageOf({ reads: [] })).not.toContain('Reads of products');
  expect(pageOf({})).not.toContain('builds on locks');
});

it('escapes what it puts into the report', () => {
  const hostile = `</script><!--<img src='x' onerror="alert(1)"> & more`;
  const sale = { strategy: hostile, soldPerSecond: 1, latency: [1], course: [] };
  const report = pageOf({
    verdict: hostile,
    data: { stock: 1, percentiles: [50], sales: [sale] },
    settings: { [hostile]: hostile },
    versions: { [hostile]: hostile },
    chartLibrary: `library('</script><!--');`,
  });
  expect(report).not.toContain('<img');
  expect(report).not.toContain('<!--');
  expect(report.match(/<\/script/g)).toHaveLength(3);
  expect(report).toContain(
    '<p>&#60;/script&#62;&#60;!--&#60;img src=&#39;x&#39; onerror=&#34;alert(1)&#34;&#62; &#38; more',
  );
  expect(JSON.parse(REPORT_DATA.exec(report)?.[1] ?? '')).toMatchObject({ sales: [sale] });
  expect(report).toContain(String.raw`library('\x3c/script>\x3c!--');`);
});

it('leaves no file behind where it looks whether it can write one', () => {
  const file = join(folder, 'not-yet.html');
  expect(writableFile(file)).toBe(file);
  expect(existsSync(file)).toBe(false);
});

it.each([
  [['--strategy', 'hope'], /"hope" is not one of none, lock/],
  [['--orders', '0'], /whole number from 1/],
  [['--stock', '1e3'], /whole number from 0/],
  [
    ['--report', '/no/such/folder/report.html'],
    /^error: option '--report \[file\]' argument '\/no\/such\/folder\/report.html' .* Name a file in a folder that you may write to/,
  ],
  [['--without', 'hope'], /"hope" is not one of once, rate-limit/],
  [['--without', 'once', '--no-primitives'], /--without needs the primitives: leave out --no-primitives/],
  [['--fault', 'flood'], /Allowed choices are kill, freeze, redis/],
  [['--fault', 'kill', '--instances', '1'], /--fault kill needs at least 2 --instances/],
  [['--fault', 'freeze', '--stock', '5'], /--fault freeze needs at least 20 --orders and --stock/],
  [['--colour'], /unknown option '--colour'/],
])('says what is wrong with %j', (args, message) => {
  const said: string[] = [];
  const ended: unknown[] = [];
  const write = jest.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0);
  const exit = jest.spyOn(process, 'exit').mockImplementation((code) => {
    ended.push(code);
    throw new Error('the program ends');
  });
  try {
    expect(() => readOptions(args)).toThrow('the program ends');
  } finally {
    write.mockRestore();
    exit.mockRestore();
  }
  expect({ ended, said: said.join('') }).toEqual({ ended: [2], said: expect.stringMatching(message) });
});

it('reads its options before it does anything', async () => {
  const failed = await run(process.execPath, [PROGRAM, '--report', '/']).catch((error: unknown) => error);
  const message = /^error: option '--report .* cannot be written \(EISDIR/;
  expect(failed).toMatchObject({ code: 2, stderr: expect.stringMatching(message) });
});
