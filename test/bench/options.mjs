import { Argument, Command, InvalidArgumentError } from 'commander';
import { writableFile } from '../../dist-sample/demo/writable-file.js';
import { PEERS } from './peers/catalogue.mjs';
import { DEFAULT_DIRECTORY } from './peers/installation.mjs';
import { requireMarkers } from './report/markdown-file.mjs';
import { SCENARIOS } from './scenarios.mjs';

/** Reads the command line. Prints what is wrong with it and exits with 2. */
export function readOptions(argv) {
  const command = new Command('npm run bench --')
    .description('Measures this library and its peers on the same work, in turn, on a Redis server of its own')
    .addArgument(new Argument('[peers...]', 'who is measured (default: all)').choices(Object.keys(PEERS)))
    .option('--ms <number>', 'how long a round takes', whole(100, 600_000), 3_000)
    .option('--rounds <number>', 'rounds of each scenario, of which the median counts', whole(1, 100), 3)
    .option('--only <text|text>', 'only scenarios whose title has one of these texts in it', scenarios)
    .option('--peers <folder>', 'where the peers are, or are installed to', DEFAULT_DIRECTORY)
    .option('--json <file>', 'write the result, with every round, as JSON', writableFile)
    .option('--markdown <file>', 'write the tables into a Markdown file, between its markers', markdownFile)
    .addHelpText('after', `\nScenarios:\n${titles()}`)
    .showHelpAfterError('(--help shows the options)')
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2));
  command.parse(argv, { from: 'user' });
  const { only, peers, ...options } = command.opts();
  const names = [...new Set(command.processedArgs[0])];
  return {
    ...options,
    scenarios: only ?? SCENARIOS,
    directory: peers,
    peers: names.length > 0 ? names : Object.keys(PEERS),
  };
}

function titles() {
  return SCENARIOS.map(({ title }) => `  ${title}`).join('\n');
}

function scenarios(value) {
  const texts = value.split('|').map((text) => text.trim());
  const chosen = SCENARIOS.filter(({ title }) => texts.some((text) => text !== '' && title.includes(text)));
  if (chosen.length === 0) throw new InvalidArgumentError(`No scenario has that in its title. There are:\n${titles()}`);
  return chosen;
}

function whole(least, most) {
  return (value) => {
    const number = Number(value);
    if (/^\d+$/.test(value) && number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give a whole number from ${least} to ${most}.`);
  };
}

function markdownFile(value) {
  const file = writableFile(value);
  try {
    requireMarkers(file);
  } catch (error) {
    throw new InvalidArgumentError(error.message);
  }
  return file;
}
