import { Command, InvalidArgumentError, Option } from 'commander';
import { SCHEME_NAMES } from './compare/schemes.js';
import { FAULTS, type Fault } from './fault.js';
import { writableFile } from './report.js';
import {
  LOCK_BACKENDS,
  PRIMITIVES,
  STRATEGIES,
  type LockBackendName,
  type Primitive,
  type Strategy,
} from './shop-facts.js';

export interface DemoOptions {
  readonly instances: number;
  readonly stock: number;
  readonly orders: number;
  readonly concurrency: number;
  readonly strategies: readonly Strategy[];
  /** Where the shop keeps its locks. */
  readonly backend: LockBackendName;
  /** What happens to the shop in the middle of each sale. */
  readonly fault?: Fault;
  /** Seconds that one sale may take at most. */
  readonly timeLimit: number;
  /** Whether products are read as well, with and without the cache. */
  readonly cacheReads: boolean;
  readonly readers: number;
  readonly readSeconds: number;
  readonly readProducts: number;
  readonly writes: number;
  /** Whether the primitives that the shop builds on locks are tried as well. */
  readonly primitives: boolean;
  /** The primitives that the shop does without, so that the demo fails. */
  readonly without: readonly Primitive[];
  /** The schemes to compare, instead of the sales. */
  readonly compare?: readonly string[];
  /** The port of the live page, or 0 for any that is free, if the page is wanted instead of the sales. */
  readonly live?: number;
  readonly json: boolean;
  /** The file of the HTML report, if one is wanted. */
  readonly report?: string;
}

/** The least and the most of each number of a sale, on the command line and on the live page. */
export const SALE_LIMITS = {
  instances: [1, 32],
  stock: [0, 1_000_000],
  orders: [1, 1_000_000],
  concurrency: [1, 2_000],
} as const;

const REPORT = 'demo-report.html';
/** What the live page suggests: enough for people to watch. */
const LIVE_SALE = { stock: 2_000, orders: 3_000 };

/** Reads the command line. Prints what is wrong with it and exits with 2. */
export function readOptions(argv: readonly string[]): DemoOptions {
  const command = new Command('npm run demo --')
    .description(
      'Sells a stock over several processes of the shop, with each strategy in turn, and counts what was sold; then reads products while they are sold, with and without the cache, and tries what the shop builds on locks',
    )
    .option('--instances <number>', 'processes of the shop', whole(...SALE_LIMITS.instances), 3)
    .option('--stock <number>', 'pieces on sale', whole(...SALE_LIMITS.stock), 200)
    .option('--orders <number>', 'orders of one piece each', whole(...SALE_LIMITS.orders), 600)
    .option('--concurrency <number>', 'orders under way at once', whole(...SALE_LIMITS.concurrency), 60)
    .option(
      '--strategy <names>',
      `one or several of ${STRATEGIES.join(', ')}; with commas, or given again`,
      severalOf(STRATEGIES),
    )
    .addOption(
      new Option('--backend <store>', 'where the strategies lock and fenced keep their locks')
        .choices(LOCK_BACKENDS)
        .default('redis'),
    )
    .addOption(
      new Option('--fault <kind>', 'what strikes in the middle of each sale; nothing else is tried then').choices(
        FAULTS,
      ),
    )
    .option(
      '--time-limit <seconds>',
      'how long one sale may take at most (default: 60, and a second for every 20 orders)',
      whole(1, 86_400),
    )
    .option('--no-cache-reads', 'leave out the reads of products with and without the cache')
    .option('--readers <number>', 'clients that read products at once', whole(1, 2_000), 60)
    .option('--read-seconds <number>', 'how long they read, with the cache and without it', whole(1, 3_600), 2)
    .option('--read-products <number>', 'products that they read, the first most often', whole(1, 10_000), 20)
    .option('--writes <number>', 'orders and restocks of these products a second', whole(1, 10_000), 100)
    .option('--no-primitives', 'leave out what the shop builds on locks')
    .option(
      '--without <primitives>',
      `see the demo fail: the shop does without one or several of ${PRIMITIVES.join(', ')}`,
      severalOf(PRIMITIVES),
      [],
    )
    .addOption(
      new Option(
        '--compare [schemes]',
        `measure ways to keep orders apart, also amid faults, instead of the sales: all, or some of ${SCHEME_NAMES.join(', ')}`,
      )
        .preset(SCHEME_NAMES.join(','))
        .argParser(severalOf(SCHEME_NAMES))
        .conflicts(['strategy', 'backend', 'fault', 'report', 'without']),
    )
    .addOption(
      new Option(
        '--live [port]',
        'serve a page on this machine that starts sales and shows them, with buttons that break the shop (default port: any that is free)',
      )
        .preset('0')
        .argParser(whole(0, 65_535))
        .conflicts(['compare', 'fault', 'json', 'report', 'timeLimit', 'without']),
    )
    .option('--json', 'print the result as one line of JSON', false)
    .addOption(
      new Option('--report [file]', `write a report with charts, as one HTML file (default: ${REPORT})`)
        .preset(REPORT)
        .argParser(writableFile),
    )
    .allowExcessArguments(false)
    .showHelpAfterError('(--help shows the options)')
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2));
  command.parse([...argv], { from: 'user' });
  const given = command.opts<
    Omit<DemoOptions, 'strategies' | 'timeLimit' | keyof typeof LIVE_SALE> &
      Record<keyof typeof LIVE_SALE, number> & { strategy?: Strategy[]; timeLimit?: number }
  >();
  if (given.live !== undefined) {
    for (const name of ['stock', 'orders'] as const) {
      if (command.getOptionValueSource(name) === 'default') given[name] = LIVE_SALE[name];
    }
  }
  const { strategy, timeLimit = timeLimitFor(given.orders), ...options } = given;
  const { fault, instances, orders, stock } = options;
  if (fault && instances < 2) command.error(`error: --fault ${fault} needs at least 2 --instances`);
  if (fault && Math.min(orders, stock) < 20)
    command.error(`error: --fault ${fault} needs at least 20 --orders and --stock`);
  if (options.without.length > 0 && (fault || !options.primitives)) {
    command.error(`error: --without needs the primitives: leave out ${fault ? '--fault' : '--no-primitives'}`);
  }
  if (fault === 'redis' && process.env['REDIS_URL']) {
    command.error('error: --fault redis stops a Redis that the demo starts itself: unset REDIS_URL');
  }
  if (options.compare && (process.env['REDIS_URL'] || process.env['DATABASE_URL'])) {
    command.error('error: --compare restarts its servers, and starts them itself: unset REDIS_URL and DATABASE_URL');
  }
  return {
    ...options,
    cacheReads: options.cacheReads && !fault,
    primitives: options.primitives && !fault,
    timeLimit,
    strategies: strategy ?? STRATEGIES,
  };
}

/** Seconds that a sale may take at most: a minute, and a second for every 20 orders. */
export function timeLimitFor(orders: number): number {
  return 60 + Math.ceil(orders / 20);
}

function whole(least: number, most: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (/^\d+$/.test(value) && number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give a whole number from ${least} to ${most}.`);
  };
}

function severalOf<Name extends string>(choices: readonly Name[]): (value: string, before?: Name[]) => Name[] {
  return (value, before = []) => {
    const names = value.split(',').map((name) => name.trim());
    const unknown = names.find((name) => !choices.includes(name as Name));
    if (unknown !== undefined) throw new InvalidArgumentError(`"${unknown}" is not one of ${choices.join(', ')}.`);
    return [...new Set([...before, ...(names as Name[])])];
  };
}
