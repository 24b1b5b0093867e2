import { Command, InvalidArgumentError, Option } from 'commander';
import { STRATEGIES, type Strategy } from '../deduction/strategy.js';
import { FAULTS, type Fault } from './fault.js';
import { writableFile } from './writable-file.js';

export interface DemoOptions {
  readonly instances: number;
  readonly stock: number;
  readonly orders: number;
  readonly concurrency: number;
  readonly strategies: readonly Strategy[];
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
  readonly json: boolean;
  /** The file of the HTML report, where one is wanted. */
  readonly report?: string;
}

const REPORT = 'demo-report.html';

/** Reads the command line. Prints what is wrong with it and exits with 2. */
export function readOptions(argv: readonly string[]): DemoOptions {
  const command = new Command('npm run demo --')
    .description(
      'Sells a stock over several processes of the shop, with each strategy in turn, and counts what was sold; then reads products while they are sold, with and without the cache',
    )
    .option('--instances <number>', 'processes of the shop', whole(1, 32), 3)
    .option('--stock <number>', 'pieces on sale', whole(0, 1_000_000), 200)
    .option('--orders <number>', 'orders of one piece each', whole(1, 1_000_000), 600)
    .option('--concurrency <number>', 'orders under way at once', whole(1, 2_000), 60)
    .option('--strategy <names>', `one or several of ${STRATEGIES.join(', ')}; with commas, or given again`, strategies)
    .addOption(
      new Option('--fault <kind>', 'what strikes in the middle of each sale; products are not read then').choices(
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
    Omit<DemoOptions, 'strategies' | 'timeLimit'> & { strategy?: Strategy[]; timeLimit?: number }
  >();
  const { strategy, timeLimit = 60 + Math.ceil(given.orders / 20), ...options } = given;
  const { fault, instances, orders, stock } = options;
  if (fault && instances < 2) command.error(`error: --fault ${fault} needs at least 2 --instances`);
  if (fault && Math.min(orders, stock) < 20)
    command.error(`error: --fault ${fault} needs at least 20 --orders and --stock`);
  if (fault === 'redis' && process.env['REDIS_URL']) {
    command.error('error: --fault redis stops a Redis that the demo starts itself: unset REDIS_URL');
  }
  return { ...options, cacheReads: options.cacheReads && !fault, timeLimit, strategies: strategy ?? STRATEGIES };
}

function whole(least: number, most: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (/^\d+$/.test(value) && number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give a whole number from ${least} to ${most}.`);
  };
}

function strategies(value: string, before: Strategy[] = []): Strategy[] {
  const names = value.split(',').map((name) => name.trim());
  const unknown = names.find((name) => !STRATEGIES.includes(name as Strategy));
  if (unknown !== undefined) throw new InvalidArgumentError(`"${unknown}" is not one of ${STRATEGIES.join(', ')}.`);
  return [...new Set([...before, ...(names as Strategy[])])];
}
