import type { Command } from 'commander';
import { fieldsOf, type LockFields } from '../admin/lock-fields.js';
import type { LockService } from '../lock/lock.service.js';
import { EXIT, limitOption, type GlobalOptions } from './options.js';
import { placeOf, withServices } from './services.js';
import { duration, print, fieldTable, queueOf, visible, lockTable } from './tables.js';

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
        return print(json, { name, held: false }, () => `Nobody holds "${visible(name)}"${placeOf(options)}`);
      }
      const fields = fieldsOf({ key: name, ...info });
      const { waiters, ...others } = fields;
      const queue = waiters && { waiters: queueOf(waiters) };
      print(json, fields, () => fieldTable({ ...others, ttl: duration(fields.ttl), ...queue }));
    });
}

interface ListOptions extends GlobalOptions {
  readonly cursor?: string;
  readonly limit: number;
}

export function addListCommand(root: Command): void {
  root
    .command('list')
    .description('lists the locks that are held, with their holders')
    .argument('[pattern]', 'a glob of Redis that the names match', '*')
    .option('--cursor <cursor>', 'go on where another list ended')
    .addOption(limitOption())
    .action(async (pattern: string, _own: unknown, command: Command) => {
      const { json, cursor, limit, ...options } = command.optsWithGlobals<ListOptions>();
      const found = await withServices(options, ({ locks }) => heldLocks(locks, pattern, limit, cursor));
      print(json, { locks: found.locks, cursor: found.cursor ?? null }, () => textOf(found, pattern));
    });
}

interface Found {
  readonly locks: readonly LockFields[];
  readonly cursor: string | undefined;
}

/** Takes pages until `limit` locks are found. The last page may exceed it: its locks would be on no other one. */
export async function heldLocks(locks: LockService, pattern: string, limit: number, first?: string): Promise<Found> {
  const found: LockFields[] = [];
  let cursor = first;
  do {
    const page = await locks.list(pattern, { cursor, limit });
    found.push(...page.locks.map(fieldsOf));
    ({ cursor } = page);
  } while (cursor !== undefined && found.length < limit);
  return { locks: found, cursor };
}

function textOf({ locks, cursor }: Found, pattern: string): string {
  const table = locks.length > 0 ? lockTable(locks) : `Nobody holds a lock that matches "${pattern}"`;
  return cursor === undefined ? table : `${table}\nThere may be more: --cursor ${cursor}`;
}
