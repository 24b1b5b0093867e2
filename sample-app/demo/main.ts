import { writeFile } from 'node:fs/promises';
import cliProgress from 'cli-progress';
import { comparisonTable, comparisonVerdict, COMPARISON_NOTES } from './compare/comparison-report.js';
import { compareSchemes } from './compare/comparison.js';
import { Environment, versionsOf } from './environment.js';
import { FAULT_NAMES, FaultOfSale } from './fault.js';
import { CourseRecorder, findingsOf, htmlReport, type Outcome, type Sale } from './html-report/html-report.js';
import { sendOrders } from './load.js';
import { readOptions, type DemoOptions } from './options.js';
import { tryPrimitives } from './primitives/primitives.js';
import { readWhileChanging, type ReadsResult } from './reads/cached-reads.js';
import { faultTable, primitivesTable, readsTable, table } from './report.js';
import type { Strategy } from './shop-facts.js';
import { putOnSale, type Shop } from './shop.js';
import { audit, passed, stockOf, verdict, type PrimitiveResult } from './verdict.js';
import { plural, reasonOf } from './words.js';

const INTERRUPTED = 130;
const WARM_UP_ORDERS = 600;

const options = readOptions(process.argv.slice(2));
const environment = new Environment();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    if (environment.ended) {
      console.error('\nEnding at once');
      process.exit(INTERRUPTED);
    }
    console.error('\nCleaning up (once more to end at once)');
    void environment[Symbol.asyncDispose]().finally(() => process.exit(INTERRUPTED));
  });
}
try {
  if (options.live === undefined) {
    process.exitCode = await (options.compare ? compare(options.compare, options.json) : demonstrate(options));
  } else {
    const { serveLive } = await import('./live/live.js');
    await serveLive(environment, options);
  }
} catch (error) {
  // An interruption makes the current step fail.
  if (!environment.ended) {
    const illness = await environment.illness();
    console.error(`The demo failed: ${[reasonOf(error), ...(illness === undefined ? [] : [illness])].join('; ')}`);
  }
  process.exitCode = 1;
} finally {
  await environment[Symbol.asyncDispose]();
}

async function compare(names: readonly string[], json: boolean): Promise<number> {
  const comparison = await compareSchemes(names);
  const { passed: kept, text } = comparisonVerdict(comparison);
  if (json) console.log(JSON.stringify({ comparison, verdict: text }));
  else console.log(`${comparisonTable(comparison, process.stdout.isTTY)}\n${COMPARISON_NOTES}\n${text}`);
  return kept ? 0 : 1;
}

async function demonstrate(settings: DemoOptions): Promise<number> {
  const store = settings.backend === 'redis' ? '' : ` with their locks in ${settings.backend}`;
  console.error(
    `Starting Redis, PostgreSQL and ${plural(settings.instances, 'process', 'processes')} of the shop${store}`,
  );
  await environment.start(settings.instances, settings.backend, settings.without);
  await warmUp(settings);
  const sales: Sale[] = [];
  let ended: string | undefined;
  for (const strategy of settings.strategies) {
    sales.push(await sell(strategy, settings));
    ended = await reasonToEnd(sales);
    if (ended !== undefined) break;
  }
  const reads: ReadsResult[] = [];
  if (settings.cacheReads && ended === undefined) {
    for (const cache of ['off', 'on'] as const) reads.push(await read(cache, settings));
  }
  const primitives: PrimitiveResult[] = [];
  if (settings.primitives && ended === undefined) {
    primitives.push(
      ...(await tryPrimitives(environment, ({ primitive, tried }) => console.error(`${primitive}: ${tried}`))),
    );
  }
  if (environment.ended) return INTERRUPTED;
  const outcome = { sales, reads, primitives, ...(ended !== undefined && { ended }) };
  await tell(outcome, settings);
  return passed(findingsOf(outcome)) ? 0 : 1;
}

/** If a shop is unhealthy after orders have failed, it will be unhealthy in the next sale. */
async function reasonToEnd(sales: readonly Sale[]): Promise<string | undefined> {
  const last = sales.at(-1)?.result;
  if (!last?.errors) return undefined;
  const illness = await environment.illness();
  return illness === undefined ? undefined : `the demo ended after ${last.strategy}, because ${illness}`;
}

async function tell(outcome: Outcome, settings: DemoOptions): Promise<void> {
  const findings = findingsOf(outcome);
  const { results, reads, primitives } = findings;
  const conclusion = verdict(findings);
  if (settings.json) console.log(JSON.stringify({ settings, results, reads, primitives, verdict: conclusion }));
  else {
    const colours = process.stdout.isTTY;
    const { fault } = settings;
    const tables = [
      table(results, colours),
      ...(fault ? [`What it cost that ${FAULT_NAMES[fault]}:`, faultTable(results, colours)] : []),
      ...(reads.length > 0 ? [readsTable(reads, colours)] : []),
      ...(primitives.length > 0 ? [primitivesTable(primitives, colours)] : []),
    ];
    console.log(`${tables.join('\n')}\n${conclusion}`);
  }
  if (settings.report === undefined) return;
  const versions = await versionsOf(environment);
  await writeFile(settings.report, await htmlReport(outcome, settings, versions));
  console.error(`The report is in ${settings.report}`);
}

async function sell(strategy: Strategy, settings: DemoOptions): Promise<Sale> {
  const { stock, orders, concurrency, timeLimit } = settings;
  const sku = `teapot-${strategy}`;
  await putOnSale(environment.shops[0] as Shop, sku, stock);
  const fault = settings.fault && new FaultOfSale(settings.fault, environment, Math.ceil(Math.min(stock, orders) / 4));
  const bar = progressBar(`${strategy.padEnd(11)} {bar} {value}/{total} orders`);
  bar.start(orders, 0);
  const recorder = new CourseRecorder(stock, () => stockOf(environment.database, sku));
  let accepted = 0;
  const { result, latency } = await sendOrders({
    shops: [...environment.shops],
    strategy,
    sku,
    orders,
    concurrency,
    timeLimit,
    sendAgain: () => fault?.struck ?? false,
    onAnswer: (answer, shop) => {
      bar.increment();
      recorder.answered(answer);
      if (answer === 'accepted') fault?.accepted(++accepted, shop);
    },
    onSilence: (message) => console.error(`${process.stderr.isTTY ? '\n' : ''}${strategy}: ${message}`),
    signal: environment.signal,
  });
  await fault?.repair();
  const course = await recorder.stop();
  bar.stop();
  if (!process.stderr.isTTY) console.error(`${strategy}: ${plural(orders, 'order')} sent`);
  const audited = await audit(environment.database, sku, stock, result);
  const facts = { strategy, stock, ordered: orders, ...(fault && { struck: fault.struck }) };
  return { result: { ...facts, ...result, ...audited }, latency, course };
}

async function read(cache: 'on' | 'off', settings: DemoOptions): Promise<ReadsResult> {
  const { readers, readSeconds, readProducts: products, writes } = settings;
  const bar = progressBar(`cache ${cache.padEnd(5)} {bar} {reads} reads`);
  const start = performance.now();
  bar.start(readSeconds * 1_000, 0, { reads: 0 });
  const result = await readWhileChanging(
    environment.shops,
    cache,
    { readers, readSeconds, products, writes },
    (reads) => bar.update(Math.min(performance.now() - start, readSeconds * 1_000), { reads }),
  );
  bar.stop();
  if (!process.stderr.isTTY) console.error(`cache ${cache}: ${result.reads} reads`);
  return result;
}

function progressBar(format: string): cliProgress.SingleBar {
  const settings = { format, stream: process.stderr, hideCursor: true };
  return new cliProgress.SingleBar(settings, cliProgress.Presets.shades_classic);
}

/** Otherwise the first strategy would pay for cold code and the first connections. */
async function warmUp(settings: DemoOptions): Promise<void> {
  const sku = 'warm-up';
  const orders = Math.min(settings.orders, WARM_UP_ORDERS);
  const { concurrency } = settings;
  await putOnSale(environment.shops[0] as Shop, sku, orders);
  await sendOrders({
    shops: environment.shops,
    strategy: 'none',
    sku,
    orders,
    concurrency,
    timeLimit: settings.timeLimit,
    sendAgain: () => false,
    onAnswer: () => {},
    onSilence: (message) => console.error(`warm-up: ${message}`),
    signal: environment.signal,
  });
}
