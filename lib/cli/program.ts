import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { addCacheCommands } from './commands/cache.js';
import { addInspectCommand } from './commands/inspect.js';
import { addListCommand } from './commands/list.js';
import { addReleaseCommand } from './commands/release.js';
import { addWatchCommand } from './commands/watch.js';
import { addGlobalOptions } from './global-options.js';

const EXIT_CODES = `
Exit codes: 0 done; 1 not found, or refused; 2 wrong usage; 3 the store does not serve.
What each command costs: docs/operations/inspection.md`;

/** The commands and their options. Throws a `CommanderError` instead of ending the process. */
export function program(): Command {
  const manifest = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  const root = new Command('nest-redis-lock')
    .description('Shows the locks and cached values of nest-redis-lock, and takes them away')
    .version(version)
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .addHelpText('after', EXIT_CODES);
  addGlobalOptions(root);
  addListCommand(root);
  addInspectCommand(root);
  addReleaseCommand(root);
  addCacheCommands(root);
  addWatchCommand(root);
  return root;
}
