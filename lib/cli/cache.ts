import type { Command } from 'commander';
import { endless } from '../admin/lock-fields.js';
import { EXIT, UsageError, type GlobalOptions } from './options.js';
import { withServices, type Services } from './services.js';
import { duration, print, fieldTable, visible } from './tables.js';

interface InvalidateOptions extends GlobalOptions {
  readonly tag: readonly string[];
}

export function addCacheCommands(root: Command): void {
  const cache = root.command('cache').description('shows and invalidates cached values');
  addInspect(cache);
  addInvalidate(cache);
}

function addInspect(cache: Command): void {
  cache
    .command('inspect')
    .description('shows what Redis keeps under a key, without the value')
    .argument('<key>', 'the key, with the prefixes of its namespaces')
    .action(async (key: string, _own: unknown, command: Command) => {
      const { json, ...options } = command.optsWithGlobals<GlobalOptions>();
      const info = await withCache(options, (service) => service.inspect(key));
      if (!info) {
        process.exitCode = EXIT.notFound;
        return print(json, { key, state: null }, () => `Nothing is stored under "${visible(key)}"`);
      }
      const fields = { key, ...info, freshFor: endless(info.freshFor), keptFor: endless(info.keptFor) };
      print(json, fields, () =>
        fieldTable({
          ...fields,
          freshFor: duration(fields.freshFor),
          keptFor: duration(fields.keptFor),
          tags: info.tags.join(', '),
          invalidatedTags: info.invalidatedTags.join(', '),
          loading: info.loading === undefined ? 'no' : `the load lease ends in ${duration(info.loading)}`,
        }),
      );
    });
}

function addInvalidate(cache: Command): void {
  cache
    .command('invalidate')
    .description('deletes a value, or all values with a tag, in every process')
    .argument('[key]', 'the key, with the prefixes of its namespaces')
    .option('--tag <tag>', 'a tag; may be given several times', (tag, tags: string[]) => [...tags, tag], [])
    .action(async (key: string | undefined, _own: unknown, command: Command) => {
      const { json, tag: tags, ...options } = command.optsWithGlobals<InvalidateOptions>();
      if (key === undefined && tags.length === 0) throw new UsageError('Give a key, or --tag <tag>');
      const deleted = await withCache(options, async (service) => {
        if (tags.length > 0) await service.deleteByTag(tags);
        return key === undefined ? 0 : service.del(key);
      });
      print(json, { ...(key !== undefined && { key, found: deleted > 0 }), tags }, () => {
        const found = deleted > 0 ? '' : ', under which nothing was stored';
        return [
          ...(key === undefined ? [] : [`Invalidated "${visible(key)}"${found}`]),
          ...tags.map((tag) => `Invalidated every value with the tag "${visible(tag)}"`),
        ].join('\n');
      });
    });
}

/** @throws UsageError for another backend than Redis */
async function withCache<T>(options: GlobalOptions, body: (cache: Services['cache']) => Promise<T>): Promise<T> {
  if (options.backend !== 'redis') {
    throw new UsageError(
      `The cache is in Redis, not in ${options.backend}: leave --backend out, and give --redis <url>`,
    );
  }
  return withServices(options, ({ cache }) => body(cache));
}
