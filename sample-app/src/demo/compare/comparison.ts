import { reasonOf } from '../../places.js';
import { audit, type Audit } from '../audit.js';
import { sendOrders, type LoadResult } from '../load.js';
import { startLockServer, type LockServer } from '../lock-server.js';
import { putOnSale } from '../put-on-sale.js';
import { acquireTimes, type AcquireTimes } from './acquire-times.js';
import { ComparisonServers } from './comparison-servers.js';
import { outcomesOfFaults, type FaultOutcomes } from './faults.js';
import { schemesOf, setupsOf, type Scheme, type Setup } from './schemes.js';
import { Stage } from './stage.js';

export type SaleResult = LoadResult & Audit;

interface Measured extends FaultOutcomes {
  readonly scheme: Scheme;
  /** A sale in which nothing fails. */
  readonly sale: SaleResult;
  /** Only for locks of the module. */
  readonly acquire?: AcquireTimes;
}

interface NotRun {
  readonly scheme: Scheme;
  /** Why its server could not be started. */
  readonly notRun: string;
}

export type SchemeResult = Measured | NotRun;

/** The load of one sale. More orders than pieces, so that the last pieces are fought for. */
const STOCK = 90;
const ORDERS = 120;
const CONCURRENCY = 24;
/** Orders before the sale: the first ones pay for cold code and new connections. */
const WARM_UP = 36;
/** Seconds. */
const TIME_LIMIT = 60;

/** Measures the schemes of these names, on servers of its own. */
export async function compareSchemes(names: readonly string[]): Promise<readonly SchemeResult[]> {
  console.error('Starting Redis and PostgreSQL');
  await using servers = await ComparisonServers.start();
  const results: SchemeResult[] = [];
  for (const setup of setupsOf(schemesOf(names))) results.push(...(await runSetup(setup, servers)));
  return schemesOf(names).flatMap(({ name }) => results.filter(({ scheme }) => scheme.name === name));
}

async function runSetup(setup: Setup, servers: ComparisonServers): Promise<readonly SchemeResult[]> {
  console.error(`Measuring ${setup.schemes.map(({ title }) => title).join('; ')}`);
  let lockServer: LockServer;
  try {
    lockServer = await startLockServer(setup.backend);
  } catch (error) {
    const [notRun = ''] = reasonOf(error).split('\n');
    return setup.schemes.map((scheme) => ({ scheme, notRun }));
  }
  try {
    return await measure(setup, servers, lockServer);
  } finally {
    await lockServer.stop();
  }
}

async function measure(setup: Setup, servers: ComparisonServers, lockServer: LockServer): Promise<SchemeResult[]> {
  const { schemes, backend } = setup;
  await using stage = await Stage.open(setup, servers, lockServer);
  const sales: SaleResult[] = [];
  for (const scheme of schemes) sales.push(await sell(scheme, stage, servers));
  const locks = schemes.some(({ strategy }) => strategy === 'lock');
  const acquire = locks ? await acquireTimes({ name: backend, url: lockServer.url }) : undefined;
  const outcomes = await outcomesOfFaults(stage, schemes, servers.database);
  return schemes.map((scheme, index) => ({
    scheme,
    sale: sales[index] as SaleResult,
    ...(acquire && scheme.strategy === 'lock' && { acquire }),
    ...(outcomes[index] as FaultOutcomes),
  }));
}

async function sell(scheme: Scheme, stage: Stage, { database }: ComparisonServers): Promise<SaleResult> {
  await order(scheme, stage, `${scheme.name}-warm-up`, WARM_UP, WARM_UP);
  const sku = `${scheme.name}-sale`;
  const result = await order(scheme, stage, sku, STOCK, ORDERS);
  return { ...result, ...(await audit(database, sku, STOCK, result)) };
}

async function order(
  { strategy, title }: Scheme,
  { shops }: Stage,
  sku: string,
  stock: number,
  orders: number,
): Promise<LoadResult> {
  await putOnSale(shops[0], sku, stock);
  const { result } = await sendOrders({
    shops,
    strategy,
    sku,
    orders,
    concurrency: CONCURRENCY,
    timeLimit: TIME_LIMIT,
    sendAgain: () => false,
    onAnswer: () => {},
    onSilence: (message) => console.error(`${title}: ${message}`),
  });
  return result;
}
