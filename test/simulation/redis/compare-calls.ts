import { ComparedRedis } from './compared-redis.js';
import { Random } from './random.js';
import { RandomCalls } from './random-calls.js';

/** How many turns of calls begin with the same empty server. */
const TURNS = 400;

interface Comparison {
  readonly commands: number;
  readonly difference: string | undefined;
  readonly failedAt: number | undefined;
}

interface ComparisonOptions {
  /** How many commands to compare at least. */
  readonly calls: number;
  readonly seed: number;
  readonly lag?: number;
  readonly report?: (line: string) => void;
}

/** Makes random calls until it has compared `calls` commands, or until one differs. */
export async function compareCalls({ calls, seed, lag, report }: ComparisonOptions): Promise<Comparison> {
  await using compared = await ComparedRedis.start({
    ...(lag !== undefined && { lag }),
    protocol: seed % 2 === 0 ? 2 : 3,
  });
  let sequence = seed;
  for (; compared.commands < calls && compared.difference === undefined; sequence++) {
    await compared.restart();
    const random = new Random(sequence);
    const callers = new RandomCalls(compared, random);
    await callers.open();
    for (let turn = 0; turn < TURNS && compared.commands < calls && compared.difference === undefined; turn++) {
      await callers.next();
    }
    await callers.close();
    report?.(`sequence ${sequence}: ${compared.commands} commands`);
  }
  const { commands, difference } = compared;
  return { commands, difference, failedAt: difference === undefined ? undefined : sequence - 1 };
}
