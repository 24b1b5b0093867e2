import { Command, InvalidArgumentError, Option } from 'commander';
import { PeerPackages } from '../../bench/peers/installation.mjs';
import { type ContentionReport, LONG_HOLDS, LONGEST_PAUSE, runContention, summary } from './contention.js';
import type { Peer } from './crew.js';
import type { Tally } from './evidence.js';
import { type Backend, BACKENDS } from './stores.js';

/**
 * Those of the benchmark, so that both speak of the same versions. It is compiled to a folder of its own, two levels
 * deeper.
 */
const PACKAGES = new URL('../../../../test/bench/peers/packages.json', import.meta.url);

/** The folder of what a peer needs, installed outside of the repository if it is not. */
async function packagesOf(peer: Peer): Promise<string | undefined> {
  if (peer === 'ours') return undefined;
  const packages = new PeerPackages(PACKAGES);
  const { directory, versionOf } = await packages.install(
    [{ packages: [peer] }],
    packages.defaultDirectory,
    new AbortController().signal,
  );
  if (versionOf(peer, peer) === undefined) throw new Error(`${peer} is not installed in ${directory}`);
  return directory;
}

const SEEDS = 2 ** 31 - 1;
const EVERY = 5_000;
/** Longer than most bursts of mischief, so that two contenders meet the same faults at the same times (ms). */
const RHYTHM = 3_000;

interface Options {
  readonly cycles: number;
  readonly seed: number;
  readonly pause: number;
  readonly longHolds: number;
  readonly reads: number;
  readonly peer: Peer;
  readonly backend: Backend;
  readonly compare?: true;
  readonly seconds: number;
}

const { cycles, seed, pause, longHolds, reads, peer, backend, compare, seconds } = new Command('npm run chaos --')
  .description('Has processes contend for a few locks while they are killed and stopped and their connections are cut')
  .option('--cycles <number>', 'locks to be taken and given back', whole, 100_000)
  .addOption(
    new Option('--seed <number>', 'what the mischief is drawn from (default: another one each time)')
      .argParser(whole)
      .default(Math.floor(Math.random() * SEEDS), ''),
  )
  .option('--pause <ms>', 'the longest peace between two bursts of mischief', whole, LONGEST_PAUSE)
  .option('--long-holds <number>', 'one hold in this number is long enough to be renewed', whole, LONG_HOLDS)
  .option('--reads <percent>', 'holds that read, of 100 (redis)', whole, 0)
  .addOption(new Option('--peer <name>', 'whose locks are taken').choices(['ours', 'redlock']).default('ours'))
  .addOption(new Option('--backend <name>', 'where our locks are kept').choices(BACKENDS).default('redis'))
  .option('--compare', 'ours and redlock, one after the other, with the same mischief at the same times')
  .option('--seconds <number>', 'with --compare: how long each of them contends', whole, 60)
  .allowExcessArguments(false)
  .showHelpAfterError('(--help shows the options)')
  .parse()
  .opts<Options>();

let printed = performance.now();
const reports: ContentionReport[] = [];
for (const each of compare ? (['ours', 'redlock'] as const) : [peer]) {
  const common = { seed, pause, longHolds, reads, peer: each, backend, modules: await packagesOf(each), onProgress };
  const limits = compare ? { cycles: 0, duration: seconds * 1_000, rhythm: RHYTHM } : { cycles };
  reports.push(await runContention({ ...common, ...limits, tolerant: each !== 'ours' }));
}
console.log(summary(...reports));
process.exitCode = reports.some((report) => report.peer === 'ours' && report.findingsInAll > 0) ? 1 : 0;

function onProgress(tally: Tally): void {
  if (performance.now() - printed < EVERY) return;
  printed = performance.now();
  console.error(`${tally.cycles} cycles, ${tally.fencedOff} fenced off`);
}

function whole(value: string): number {
  if (/^\d+$/.test(value) && Number(value) <= SEEDS) return Number(value);
  throw new InvalidArgumentError(`Give a whole number up to ${SEEDS}.`);
}
