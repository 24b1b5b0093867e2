import type { Command } from 'commander';
import { EXIT } from '../failure.js';
import type { GlobalOptions } from '../global-options.js';
import { fieldsOf } from '../../admin/lock-fields.js';
import { duration } from '../output/duration.js';
import { print } from '../output/print.js';
import { fieldTable, queueOf, visible } from '../output/tables.js';
import { withServices } from '../services.js';

export function addInspectCommand(root: Command): void {
  root
    .command('inspect')
    .description('shows who holds a lock')
    .argument('<name>', 'the name of the lock')
    .action(async (name: string, _own: unknown, command: Command) => {
      const { json, ...options } = command.optsWithGlobals<GlobalOptions>();
      const info = await withServices(options, ({ locks }) => locks.inspect(name));
      if (!info) {
        process.exitCode = EXIT.notFound;
        return print(json, { name, held: false }, () => `Nobody holds "${visible(name)}"`);
      }
      const fields = fieldsOf({ key: name, ...info });
      const { waiters, ...others } = fields;
      const queue = waiters && { waiters: queueOf(waiters) };
      print(json, fields, () => fieldTable({ ...others, ttl: duration(fields.ttl), ...queue }));
    });
}
