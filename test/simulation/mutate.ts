// Breaks one rule at a time in a copy of the library, and counts the schedules until one of them notices:
//   npm run simulate:mutations -- [--seeds 10000] [--only R7] [--table test/simulation/mutations/found.md]
// In the schedules before that one, and in that one, the library as it is must violate nothing.

import { appendFileSync, cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import ts from 'typescript';
import { inTask, installClock, realNow } from './clock.js';
import { COMPILED_LIBRARY, type Library, loadLibrary } from './library.js';
import { type Mutation, MUTATIONS } from './mutations/index.js';
import { createLua } from './redis/lua.js';
import { runSchedule } from './schedule.js';
import { runSeeds, type SeedResult } from './seeds.js';
import type { StoreName } from './stores/index.js';
import type { Violation } from './verdict.js';

const SOURCES = fileURLToPath(new URL('../../../lib/', import.meta.url));
/** In how many schedules, up to the one that notices, the library as it is runs as well. */
const UNBROKEN = 10;
/** One for each process: two may look for mutations at one time. */
const MUTANT = fileURLToPath(new URL(`../../mutant-${process.pid}/`, import.meta.url));

const { seeds, from, only, table } = new Command('npm run simulate:mutations --')
  .option('--seeds <number>', 'how many schedules each may take', Number, 10_000)
  .option('--from <number>', 'the first seed', Number, 1)
  .option('--only <text>', 'only mutations whose name has this text', '')
  .option('--table <file>', 'adds a row for each to this table of Markdown')
  .parse()
  .opts<{ seeds: number; from: number; only: string; table?: string }>();

// The library as it is runs in this thread, which loads it once for all mutations.
installClock();
const lua = await createLua();
const libraries = new Map<StoreName, Library>();

let wrong = 0;
for (const mutation of MUTATIONS.filter(({ name }) => name.includes(only))) {
  apply(mutation);
  const started = realNow();
  const { found, done } = await search(mutation);
  const unbroken = found && (await runUnbroken(mutation, found.seed));
  const seconds = ((realNow() - started) / 1_000).toFixed(0);
  const { name, covered } = mutation;
  const verdict = unbroken ? 'WORLD' : found ? 'found' : covered ? 'covered' : 'MISSED';
  const told = [found && `seed ${found.seed}, ${toldOf(found)}`, unbroken && `unbroken: ${toldOf(unbroken)}`];
  const why = told.filter(Boolean).join('; ') || (covered ?? '');
  console.log(`${verdict.padEnd(7)} ${name}: ${done} schedules, ${seconds} s; ${why}`);
  if (unbroken || (!found && !covered)) wrong += 1;
  const row = found ? `${done} | ${found.violations[0]?.rule}` : `none of ${done} | ${covered ?? ''}`;
  if (table !== undefined) appendFileSync(table, `| ${name} | ${row} |\n`);
}
rmSync(MUTANT, { recursive: true, force: true });
// Calls of processes that were killed still keep this one running.
process.stdout.write('', () => process.exit(wrong > 0 ? 1 : 0));

/** Copies the library and compiles the files anew that the mutation changes. */
function apply({ name, edits }: Mutation): void {
  rmSync(MUTANT, { recursive: true, force: true });
  cpSync(COMPILED_LIBRARY, MUTANT, { recursive: true });
  const texts = new Map<string, string>();
  for (const { file, text, becomes } of edits) {
    const source = texts.get(file) ?? readFileSync(SOURCES + file, 'utf8');
    const times = source.split(text).length - 1;
    if (times !== 1) throw new Error(`${name}: this text is ${times} times in lib/${file}, and must be once: ${text}`);
    texts.set(
      file,
      source.replace(text, () => becomes),
    );
  }
  const compilerOptions: ts.CompilerOptions = {
    module: ts.ModuleKind.ESNext,
    target: ts.ScriptTarget.ES2022,
    experimentalDecorators: true,
    emitDecoratorMetadata: true,
    verbatimModuleSyntax: true,
  };
  for (const [file, source] of texts) {
    const { outputText } = ts.transpileModule(source, { compilerOptions, fileName: file });
    writeFileSync(MUTANT + file.replace(/\.ts$/, '.js'), outputText);
  }
}

function toldOf({ violations: [first] }: { readonly violations: readonly Violation[] }): string {
  return first ? `${first.rule}: ${first.what.slice(0, 100)}` : '';
}

async function search({ kind, swarm, store = 'redis' }: Mutation) {
  let found: SeedResult | undefined;
  let done = 0;
  await runSeeds({ first: from, count: seeds, library: MUTANT, kind, swarm, store }, (result) => {
    done += 1;
    if (result.violations.length > 0) found = result;
    return found === undefined;
  });
  return { found, done };
}

/** The first of the schedules up to `last` in which the library as it is violates a rule. */
async function runUnbroken({ kind, swarm, store = 'redis' }: Mutation, last: number) {
  const library = libraries.get(store) ?? (await loadLibrary(COMPILED_LIBRARY, store));
  libraries.set(store, library);
  for (let seed = Math.max(from, last - UNBROKEN + 1); seed <= last; seed++) {
    const outcome = await inTask(() => runSchedule(seed, { library, lua, kind, swarm, traced: false }));
    if (outcome.violations.length > 0) return outcome;
  }
  return undefined;
}
