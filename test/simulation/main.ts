// Runs schedules: npm run simulate -- --seeds 1000 [--from 1], or --seed 4711 [--trace]. See docs/simulation.md.

import { availableParallelism } from 'node:os';
import { Command, Option } from 'commander';
import { inTask, installClock, realNow } from './clock.js';
import { COMPILED_LIBRARY, loadLibrary } from './library.js';
import { createLua } from './redis/lua.js';
import { runSchedule } from './schedule.js';
import { runSeeds } from './seeds.js';
import { lineOf, shrink, storyOf } from './story.js';
import { type StoreName, STORES } from './stores/index.js';
import { type Kind, KINDS } from './swarm.js';
import type { Note } from './world.js';

interface Settings {
  readonly seeds: number;
  readonly from: number;
  readonly seed?: number;
  readonly trace: boolean;
  readonly twice: boolean;
  readonly without: readonly string[];
  readonly threads: number;
  readonly library: string;
  readonly other?: string;
  readonly store: StoreName;
  readonly kind?: Kind;
}

const settings = new Command('npm run simulate --')
  .option('--seeds <number>', 'how many schedules', Number, 1_000)
  .option('--from <number>', 'the first seed', Number, 1)
  .option('--seed <number>', 'repeats one schedule', Number)
  .option('--trace', 'prints each event of it', false)
  .option('--twice', 'runs each schedule twice: their traces must be equal', false)
  .option('--without <parts>', 'leaves out parts of the schedule, separated by commas', (text) => text.split(','), [])
  .option('--threads <number>', 'how many schedules run at one time', Number, availableParallelism())
  .addOption(new Option('--store <name>', 'where the locks are kept').choices(Object.keys(STORES)).default('redis'))
  .addOption(new Option('--kind <calls>', 'what all callers call').choices(KINDS))
  .option('--library <folder>', 'another compiled library', COMPILED_LIBRARY)
  .option('--other <folder>', 'what every second process runs: a compiled library of another version')
  .parse()
  .opts<Settings>();

/** Holds that a schedule should have. */
const FEW = 50;

const held = await (settings.seed === undefined ? many(settings) : one(settings.seed, settings));
// Calls of processes that were killed still keep this one running.
process.stdout.write('', () => process.exit(held ? 0 : 1));

/** Whether nothing was violated. */
async function many({ seeds, from, ...others }: Settings): Promise<boolean> {
  const started = realNow();
  const found = new Map<string, number[]>();
  let [done, holds, few, different] = [0, 0, 0, 0];
  await runSeeds({ first: from, count: seeds, ...others }, ({ seed, violations, repeatable, ...result }) => {
    done += 1;
    holds += result.holds;
    if (result.holds < FEW) few += 1;
    if (!repeatable) console.log(`seed ${seed}: two runs gave two traces`);
    if (!repeatable) different += 1;
    for (const rule of new Set(violations.map((each) => each.rule))) {
      const before = found.get(rule) ?? [];
      found.set(rule, [...before, seed]);
      const [first] = violations.filter((each) => each.rule === rule);
      if (before.length < 5) console.log(`seed ${seed}: ${rule}: ${first?.what}`);
    }
  });
  const seconds = (realNow() - started) / 1_000;
  const rules = Array.from(found, ([rule, each]) => `${rule} in ${each.length} (first seed ${Math.min(...each)})`);
  console.log(
    `${done} schedules from seed ${from}, ${holds} holds (${few} with fewer than ${FEW}), ${seconds.toFixed(1)} s, ` +
      `${(done / seconds).toFixed(1)} a second; violations: ${rules.join(', ') || 'none'}`,
  );
  return found.size === 0 && different === 0;
}

/** Twice, to see that the trace is the same; a violation is made small and told. */
async function one(seed: number, { trace, without, store, kind, ...folders }: Settings): Promise<boolean> {
  installClock();
  const library = await loadLibrary(folders.library, store);
  const other = folders.other === undefined ? undefined : await loadLibrary(folders.other, store);
  const environment = { library, other, lua: await createLua(), kind };
  const run = (left: Iterable<string>, onNote?: (note: Note) => void) =>
    inTask(() => runSchedule(seed, { ...environment, without: new Set(left), ...(onNote && { onNote }) }));
  const outcome = await run(without, trace ? (note) => console.log(lineOf(note)) : undefined);
  const { violations, hash, holds } = outcome;
  const again = await run(without);
  for (const { rule, what } of violations) console.log(`${rule}: ${what}`);
  console.log(
    `seed ${seed}: ${holds} holds, trace ${hash}, ${again.hash === hash ? 'and again' : `then ${again.hash}`}`,
  );
  const [first] = violations;
  if (first && !trace) {
    const smallest = await shrink(outcome, first.rule, (more) => run([...without, ...more]));
    console.log(storyOf(smallest.outcome, first.rule));
    const left = [...without, ...smallest.without].join(',');
    const kinds = kind ? ` --kind ${kind}` : '';
    console.log(
      `The same again: npm run simulate -- --store ${store}${kinds} --seed ${seed} --trace --without '${left}'`,
    );
  }
  return violations.length === 0 && again.hash === hash;
}
