import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { cacheChannels } from '../../lib/events/cache-channels.js';
import { idempotencyChannels } from '../../lib/events/idempotency-channels.js';
import { latchChannels } from '../../lib/events/latch-channels.js';
import { leaderChannels } from '../../lib/events/leader-channels.js';
import { lockChannels } from '../../lib/events/lock-channels.js';
import { rateLimitChannels } from '../../lib/events/rate-limit-channels.js';
import { scheduleChannels } from '../../lib/events/schedule-channels.js';
import { semaphoreChannels } from '../../lib/events/semaphore-channels.js';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));
const PAGE = readFileSync(join(REPOSITORY, 'docs/guide/events.md'), 'utf8');

/** `lock:attempt | attempt | call,wait` for each row of the page's tables. */
function documented(): string[] {
  const rows = PAGE.matchAll(/^\| `([\w:-]+)`\s+\| `(\w+)`\s+\| ([^|]+?)\s+\|/gm);
  return [...rows].map(([, channel, name, properties = '']) => {
    const names = [...properties.matchAll(/`(\w+)`/g)].map(([, property = '']) => property);
    return `${channel} | ${name} | ${names.toSorted().join(',')}`;
  });
}

const pathOf = (file: string) => join(REPOSITORY, 'lib/events', file);

/** The same from the code: the channels, and the properties of the types of their events. */
function declared(
  program: ts.Program,
  file: string,
  types: string,
  channels: Readonly<Record<string, { readonly name: string }>>,
): string[] {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(pathOf(file)) as ts.SourceFile;
  const table = source.statements.find(
    (statement): statement is ts.InterfaceDeclaration =>
      ts.isInterfaceDeclaration(statement) && statement.name.text === types,
  ) as ts.InterfaceDeclaration;
  return checker
    .getTypeAtLocation(table)
    .getProperties()
    .map((event) => {
      const properties = checker
        .getTypeOfSymbol(event)
        .getProperties()
        .map(({ name }) => name);
      const channel = channels[event.name]?.name.replace('nest-redis-lock:', '');
      return `${channel} | ${event.name} | ${properties.toSorted().join(',')}`;
    });
}

/** In the order of the page. */
const TABLES = [
  ['lock-channels.ts', 'LockEventTypes', lockChannels],
  ['cache-channels.ts', 'CacheEventTypes', cacheChannels],
  ['semaphore-channels.ts', 'SemaphoreEventTypes', semaphoreChannels],
  ['latch-channels.ts', 'LatchEventTypes', latchChannels],
  ['schedule-channels.ts', 'ScheduleEventTypes', scheduleChannels],
  ['idempotency-channels.ts', 'IdempotencyEventTypes', idempotencyChannels],
  ['rate-limit-channels.ts', 'RateLimitEventTypes', rateLimitChannels],
  ['leader-channels.ts', 'LeaderEventTypes', leaderChannels],
] as const;

it('the page lists every event with its properties', () => {
  const files = TABLES.map(([file]) => pathOf(file));
  const program = ts.createProgram(files, { strict: true, module: ts.ModuleKind.NodeNext, skipLibCheck: true });
  const events = TABLES.flatMap(([file, types, channels]) => declared(program, file, types, { ...channels }));
  expect(events).toHaveLength(TABLES.flatMap(([, , channels]) => Object.keys(channels)).length);
  expect(documented()).toEqual(events);
});
