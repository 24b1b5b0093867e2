import { writeFile } from 'node:fs/promises';
import cliProgress from 'cli-progress';
import type { Strategy } from '../deduction/strategy.js';
import { audit, stockOf } from './audit.js';
import { CourseRecorder } from './course-recorder.js';
import { Environment } from './environment.js';
import { htmlReport, type Sale } from './html-report/html-report.js';
import { sendOrders } from './load.js';
import { readOptions, type DemoOptions } from './options.js';
import { putOnSale } from './put-on-sale.js';
import { readWhileChanging, type ReadsResult } from './reads/cached-reads.js';
import { staleResults } from './reads/reads-report.js';
import { failures, readsTable, table, verdict } from './report.js';
import type { Shop } from './shop-process.js';
import { versionsOf } from './versions.js';

const INTERRUPTED = 130;
const WARM_UP_ORDERS = 600;

const options = readOptions(process.argv.slice(2));
const environment = new Environment();
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    console.error('\nCleaning up');
    void environment[Symbol.asyncDispose]().finally(() => process.exit(INTERRUPTED));
  });
}
try {
  process.exitCode = await demonstrate(options);
} catch (error) {
  // Interrupted, it fails at whatever it was about to do.
  if (!environment.ended) console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  await environment[Symbol.asyncDispose]();
}

async function demonstrate(settings: DemoOptions): Promise<number> {
  console.error(`Starting Redis, PostgreSQL and ${settings.instances} processes of the shop`);
  await environment.start(settings.instances);
  await warmUp(settings);
  const sales: Sale[] = [];
  for (const strategy of settings.strategies) sales.push(await sell(strategy, settings));
  const reads: ReadsResult[] = [];
  if (settings.cacheReads) for (const cache of ['off', 'on'] as const) reads.push(await read(cache, settings));
  if (environment.ended) return INTERRUPTED;
  const results = sales.map(({ result }) => result);
  const conclusion = verdict(results, settings.stock, reads);
  if (settings.json) console.log(JSON.stringify({ settings, results, reads, verdict: conclusion }));
  else {
    const colours = process.stdout.isTTY;
    const tables = [table(results, colours), ...(reads.length > 0 ? [readsTable(reads, colours)] : [])];
    console.log(`${tables.join('\n')}\n${conclusion}`);
  }
  if (settings.report !== undefined) {
    await writeFile(settings.report, await htmlReport(sales, reads, settings, await versionsOf(environment)));
    console.error(`The report is in ${settings.report}`);
  }
  return failures(results).length > 0 || staleResults(reads).length > 0 ? 1 : 0;
}

async function sell(strategy: Strategy, settings: DemoOptions): Promise<Sale> {
  const { stock, orders, concurrency } = settings;
  const sku = `teapot-${strategy}`;
  await putOnSale(environment.shops[0] as Shop, sku, stock);
  const bar = progressBar(`${strategy.padEnd(11)} {bar} {value}/{total} orders`);
  bar.start(orders, 0);
  const recorder = new CourseRecorder(stock, () => stockOf(environment.database, sku));
  const { result, latency } = await sendOrders({
    shops: environment.shops,
    strategy,
    sku,
    orders,
    concurrency,
    onAnswer: (answer) => {
      bar.increment();
      recorder.answered(answer);
    },
  });
  const course = await recorder.stop();
  bar.stop();
  if (!process.stderr.isTTY) console.error(`${strategy}: ${orders} orders sent`);
  const audited = await audit(environment.database, sku, stock, result);
  return { result: { strategy, ...result, ...audited }, latency, course };
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

/** The first strategy would otherwise pay for cold code and for the first connections. */
async function warmUp(settings: DemoOptions): Promise<void> {
  const sku = 'warm-up';
  const orders = Math.min(settings.orders, WARM_UP_ORDERS);
  const { concurrency } = settings;
  await putOnSale(environment.shops[0] as Shop, sku, orders);
  await sendOrders({ shops: environment.shops, strategy: 'none', sku, orders, concurrency, onAnswer: () => {} });
}
