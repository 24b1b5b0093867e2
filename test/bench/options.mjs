import { Argument, Command, InvalidArgumentError } from 'commander';
import { writableFile } from '../../dist-sample/demo/report.js';
import { requireMarkers } from './markdown.mjs';

/** Reads the command line. Prints what is wrong with it and exits with 2. */
export function readOptions({ command: name, description, peers: catalogue, packages, scenarios }, argv) {
  const command = new Command(`${name} --`)
    .description(description)
    .addArgument(new Argument('[peers...]', 'who is measured (default: all)').choices(Object.keys(catalogue)))
    .option('--ms <number>', 'how long a round takes', whole(100, 600_000), 3_000)
    .option('--rounds <number>', 'rounds of each scenario, of which the median counts', whole(1, 100), 3)
    .option('--only <text|text>', 'only scenarios whose title has one of these texts in it', chosenFrom(scenarios))
    .option('--peers <folder>', 'where the peers are, or are installed to', packages.defaultDirectory)
    .option('--json <file>', 'write the result, with every round, as JSON', writableFile)
    .option('--markdown <file>', 'write the tables into a Markdown file, between its markers', markdownFileFor(name))
    .addHelpText('after', `\nScenarios:\n${titles(scenarios)}`)
    .showHelpAfterError('(--help shows the options)')
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2));
  command.parse(argv, { from: 'user' });
  const { only, peers, ...options } = command.opts();
  const names = [...new Set(command.processedArgs[0])];
  return {
    ...options,
    scenarios: only ?? scenarios,
    directory: peers,
    peers: names.length > 0 ? names : Object.keys(catalogue),
  };
}

function titles(scenarios) {
  return scenarios.map(({ title }) => `  ${title}`).join('\n');
}

function chosenFrom(scenarios) {
  return (value) => {
    const texts = value.split('|').map((text) => text.trim());
    const chosen = scenarios.filter(({ title }) => texts.some((text) => text !== '' && title.includes(text)));
    if (chosen.length > 0) return chosen;
    throw new InvalidArgumentError(`No scenario has that in its title. There are:\n${titles(scenarios)}`);
  };
}

export function whole(least, most) {
  return (value) => {
    const number = Number(value);
    if (/^\d+$/.test(value) && number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give a whole number from ${least} to ${most}.`);
  };
}

export function positive(value) {
  if (/^\d+$/.test(value) && Number(value) > 0) return Number(value);
  throw new InvalidArgumentError('Give a whole number from 1 on.');
}

function markdownFileFor(command) {
  return (value) => {
    const file = writableFile(value);
    try {
      requireMarkers(file, command);
    } catch (error) {
      throw new InvalidArgumentError(error.message);
    }
    return file;
  };
}
