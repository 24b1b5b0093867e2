import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
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

interface Translations {
  chinesePages(): string[];
  differenceOf(page: string, text?: string): string | undefined;
}
const MODULE = new URL('../../tools/chinese.mjs', import.meta.url).href;
const { chinesePages, differenceOf } = (await import(MODULE)) as Translations;

const FOLDERS = ['docs/guide', 'docs/recipes', 'docs/migrate', 'docs/operations'];
const pagesIn = (folder: string) => readdirSync(join(REPOSITORY, folder)).filter((file) => file.endsWith('.md'));
const PAGES = [
  'README.md',
  'docs/index.md',
  ...FOLDERS.flatMap((folder) => pagesIn(folder).map((page) => `${folder}/${page}`)),
];

/** What the samples use without declaring it. */
const GIVEN = `
import type { CacheService as Cache, LockService as Locks } from 'nest-redis-lock';
declare global {
  interface Product { readonly id: number; readonly name: string; readonly shop: string }
  interface Order {
    readonly id: string; readonly customer: { readonly id: string }; readonly items: readonly { readonly sku: string }[];
  }
  interface Rate { readonly provisional: boolean; readonly validFor: number }
  const cache: Cache;
  const locks: Locks;
  const id: number;
  const ids: readonly number[];
  const shop: string;
  const product: Product;
  const created: Product;
  const products: {
    find(id: number, options?: { signal: AbortSignal }): Promise<Product | null>;
    findMany(ids: readonly number[]): Promise<Product[]>;
    names(): Promise<string[]>;
    ids(): AsyncIterable<string>;
    price(id: number, currency: string): Promise<number>;
    importPrices(): Promise<void>;
    insert(product: Product): Promise<void>;
    save(product: Product): Promise<void>;
    rename(id: number, name: string): Promise<Product>;
  };
  const order: Order;
  const orders: {
    ship(order: Order, options: { signal: AbortSignal }): Promise<void>;
    save(order: Order, report: string): Promise<void>;
  };
  const accounts: { balance(id: number): Promise<bigint> };
  const password: string;
  const ca: string;
  const nodes: { host: string; port: number }[];
  const repository: object;
  class OrderService { constructor(repository: object); ship(id: string): Promise<void> }
  function fetchRate(currency: string, options: { signal: AbortSignal }): Promise<Rate>;
  function makeReport(signal: AbortSignal): Promise<string>;
  function sql(text: string, values: readonly unknown[]): Promise<{ rowCount: number }>;
  function Transactional(): MethodDecorator;
}
`;

/** A package of users that this one does not install. */
const CONFIG = `declare module '@nestjs/config' {
  export class ConfigModule {}
  export class ConfigService { getOrThrow<T>(name: string): T }
}`;

const IMPORTS = {
  '@nestjs/common': ['Controller', 'Get', 'Injectable', 'Param', 'UseInterceptors'],
  'nest-redis-lock': [
    'Cached',
    'CacheEvict',
    'CacheHeadersInterceptor',
    'CachePut',
    'DistributedLock',
    'fixedDelay',
    'hashKey',
    'instancesOf',
    'limitedRetries',
    'LockService',
    'RedisLockModule',
    'type CacheSerializer',
    'type Lock',
  ],
};

const VIRTUAL = join(REPOSITORY, 'test/types/of-documents');

/** Every sample of a page, as a module of its own: with the imports that it does not write itself. */
function samplesOf(page: string): [path: string, code: string][] {
  const text = readFileSync(join(REPOSITORY, page), 'utf8');
  const imports = Object.entries(IMPORTS).map(([from, names]) => `import { ${names.join(', ')} } from '${from}';`);
  return [...text.matchAll(/^```ts\n([\s\S]*?)^```/gm)].flatMap(({ 1: code = '', index }) => {
    const file = /^\/\/ (src\/\S+\.ts)\n/.exec(code)?.[1];
    // `test/pack/recipes.spec.ts` compiles the applications of the recipes, with the packages that they need.
    if (file && dirname(page) === 'docs/recipes') return [];
    // The files of one application: they import each other.
    if (file) return [[join(VIRTUAL, dirname(page), file), code]];
    const line = text.slice(0, index).split('\n').length;
    const before = /^import /m.test(code) ? '' : imports.join(' ');
    return [[join(VIRTUAL, `${page.replaceAll('/', '-')}-line-${line}.ts`), `${before}export {};${code}`]];
  });
}

function problemsOf(files: ReadonlyMap<string, string>): string[] {
  const config = ts.readConfigFile(join(REPOSITORY, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config.config, ts.sys, REPOSITORY);
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, directoryExists, readFile } = host;
  host.directoryExists = (name) => name.startsWith(VIRTUAL) || directoryExists?.(name) === true;
  host.fileExists = (name) => files.has(name) || fileExists(name);
  host.readFile = (name) => files.get(name) ?? readFile(name);
  host.getSourceFile = (name, ...rest) => {
    const text = files.get(name);
    if (text === undefined) return getSourceFile(name, ...rest);
    return ts.createSourceFile(name, text, {
      languageVersion: ts.ScriptTarget.ES2022,
      impliedNodeFormat: ts.ModuleKind.ESNext,
    });
  };
  const program = ts.createProgram(
    [...files.keys()],
    { ...options, noUnusedLocals: false, noUnusedParameters: false },
    host,
  );
  return [...files.keys()].flatMap((name) => {
    const source = program.getSourceFile(name);
    if (!source) throw new Error(`${name} was not compiled`);
    const found = [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
    return found.map(({ messageText, start = 0 }) => {
      const text = ts.flattenDiagnosticMessageText(messageText, '\n');
      return `${name}: ${text}\n  ${source.text.slice(start, start + 80)}`;
    });
  });
}

const given: [string, string][] = [
  [join(VIRTUAL, 'given.ts'), GIVEN],
  [join(VIRTUAL, 'config.d.ts'), CONFIG],
];

it('has code that compiles', () => {
  const samples = PAGES.flatMap(samplesOf);
  expect(samples.length).toBeGreaterThan(50);
  expect(problemsOf(new Map([...given, ...samples]))).toEqual([]);
}, 120_000);

it('reports code that does not compile', () => {
  const broken = new Map([...given, [join(VIRTUAL, 'broken.ts'), 'export {}; await cache.get(7);']]);
  expect(problemsOf(broken)).toEqual([expect.stringContaining("'number' is not assignable")]);
}, 120_000);

it('shows no figure in the README that docs/benchmarks.md lacks', () => {
  const [readme = '', benchmarks] = ['README.md', 'docs/benchmarks.md'].map((page) =>
    readFileSync(join(REPOSITORY, page), 'utf8'),
  );
  const rows = readme.split('\n').filter((line) => line.includes('`npm run bench'));
  const figures = rows.flatMap((row) => row.split('|').slice(2, 4)).map((cell) => /[\d,.]+/.exec(cell)?.[0] ?? cell);
  expect(figures.length).toBeGreaterThan(10);
  expect(figures.filter((figure) => !benchmarks?.includes(` ${figure} |`))).toEqual([]);
});

it('names every entry point where it says what to import from where', () => {
  const page = read('docs/guide/README.md');
  const { exports } = JSON.parse(read('package.json')) as { exports: Record<string, object> };
  const names = Object.keys(exports)
    .filter((path) => path !== './package.json')
    .map((path) => path.replace('.', 'nest-redis-lock'));
  expect(names.length).toBeGreaterThan(10);
  expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});

it('names every error of the main entry on the page of the errors', () => {
  const [report = '', page = ''] = ['docs/api-report/index.public.api.md', 'docs/guide/errors.md'].map((file) =>
    readFileSync(join(REPOSITORY, file), 'utf8'),
  );
  const errors = Array.from(report.matchAll(/^export (?:abstract )?class (\w+Error)\b/gm), ([, name]) => name);
  expect(errors.length).toBeGreaterThan(20);
  expect(errors.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});

const ALL_PAGES = [
  ...PAGES,
  ...chinesePages(),
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  ...readdirSync(join(REPOSITORY, 'docs'))
    .filter((file) => file.endsWith('.md') && file !== 'index.md')
    .map((file) => `docs/${file}`),
];

/** The anchors of a page, as GitHub names them. */
function headingsOf(page: string): ReadonlySet<string> {
  const text = readFileSync(page, 'utf8').replaceAll(/^```[\s\S]*?^```/gm, '');
  const headings = Array.from(text.matchAll(/^#+ (.+)$/gm), ([, heading = '']) => heading);
  const slugs = headings.map((heading) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );
  return new Set(slugs);
}

it.each(ALL_PAGES)('%s links only to files and headings that exist', (page) => {
  const text = readFileSync(join(REPOSITORY, page), 'utf8');
  const links = Array.from(text.matchAll(/\]\((?!https?:)([^)\s]+)\)/g), ([, link = '']) => link);
  const wrong = links.filter((link) => {
    const [file = '', heading] = link.split('#');
    const target = file === '' ? join(REPOSITORY, page) : join(REPOSITORY, dirname(page), file);
    return !existsSync(target) || (heading !== undefined && !headingsOf(target).has(heading));
  });
  expect(wrong).toEqual([]);
});

it('has drawings that are in step with their sources, and say in words what they show', () => {
  expect(() => execFileSync(process.execPath, ['tools/drawings.mjs', '--check'], { cwd: REPOSITORY })).not.toThrow();
  const drawings = readdirSync(join(REPOSITORY, 'docs/images')).filter((file) => file.endsWith('.svg'));
  expect(drawings.length).toBeGreaterThan(3);
  expect(drawings.filter((file) => !/<title[^]+<desc/.test(read(`docs/images/${file}`)))).toEqual([]);
});

describe('a page in Chinese', () => {
  it.each(chinesePages())('%s is in step with its English page', (page) => {
    expect(differenceOf(page)).toBeUndefined();
  });

  it('is reported when its source, a sample or a heading differs', () => {
    const page = 'docs/zh/guide/locks.md';
    const text = read(page);
    expect(differenceOf(page, text.replace(/^source: (\S+) .*$/m, 'source: $1 000000000000'))).toContain('has changed');
    expect(differenceOf(page, text.replace("'stock:<0>'", "'stock:<1>'"))).toContain('sample 1 ');
    expect(differenceOf(page, text.replace(/^## .*\n/m, ''))).toContain('headings');
    expect(differenceOf(page, text.replace(/^source: .*$/m, ''))).toBe('names no source');
  });
});

it('names only specs that exist', () => {
  const specs = readdirSync(join(REPOSITORY, 'test'), { recursive: true, encoding: 'utf8' });
  const known = new Set(specs.map((spec) => spec.split(/[/\\]/).at(-1)));
  const named = ALL_PAGES.flatMap((page) => {
    const text = readFileSync(join(REPOSITORY, page), 'utf8');
    return Array.from(text.matchAll(/`([\w-]+\.spec\.ts)`/g), ([, spec = '']) => spec);
  });
  expect(named.filter((spec) => !known.has(spec))).toEqual([]);
});

it('defines every rule of the lock protocol that a test cites', () => {
  const test = join(REPOSITORY, 'test');
  const specs = readdirSync(test, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.spec.ts'));
  const texts = specs.map((spec) => readFileSync(join(test, spec), 'utf8'));
  const cited = texts.flatMap((text) =>
    Array.from(text.matchAll(/\(R\d+(?:, R\d+)*\)/g), ([rules]) => rules.match(/R\d+/g) ?? []).flat(),
  );
  expect(cited.length).toBeGreaterThan(40);
  const protocol = readFileSync(join(REPOSITORY, 'docs/protocol.md'), 'utf8');
  expect(cited.filter((rule) => !protocol.includes(`- **${rule}** `))).toEqual([]);
});

const read = (file: string) => readFileSync(join(REPOSITORY, file), 'utf8');
const filesIn = (folder: string) => readdirSync(join(REPOSITORY, folder)).map((file) => `${folder}/${file}`);
const namesIn = (text: string, pattern: RegExp) => [...new Set(Array.from(text.matchAll(pattern), ([, name]) => name))];

const PAGE = read('docs/operations/troubleshooting.md');
const ERRORS = filesIn('lib/errors').map(read).join('\n');

/** The rows of the page that begin with this. */
function rowsOf(name: string | undefined): string[] {
  return PAGE.split('\n').filter((line) => line.startsWith(`| \`${name}\``));
}

it('has one row for every public error, with its code', () => {
  const reports = filesIn('docs/api-report').map(read).join('\n');
  const errors = namesIn(reports, /^export class (\w+Error)\b/gm);
  expect(errors.length).toBeGreaterThan(20);
  expect(errors.filter((name) => rowsOf(name).length !== 1)).toEqual([]);
  const declared = ERRORS.split(/^(?=export (?:abstract )?class )/m);
  const wrong = errors.filter((name) => {
    const own = declared.find((text) => text.startsWith(`export class ${name} `)) ?? '';
    const [code] = namesIn(own, /\bcode: '([A-Z_]+)'/g);
    return code !== undefined && !rowsOf(name)[0]?.includes(`| \`${code}\` `);
  });
  expect(wrong).toEqual([]);
});

it('names every code of an error', () => {
  const types = Array.from(
    ERRORS.matchAll(/ErrorCode =([^;]+);|extends PrimitiveError<('[A-Z_]+')>/g),
    ([type]) => type,
  );
  const codes = namesIn(types.join('\n'), /'([A-Z_]+)'/g);
  expect(codes.length).toBeGreaterThan(20);
  expect(codes.filter((code) => !PAGE.includes(`| \`${code}\` `))).toEqual([]);
});

it('names every answer of Redis for which the library knows a remedy', () => {
  const patterns = read('lib/backends/redis/connection/connection-state.ts').match(/^ {2,4}\[?\/.*\/,/gm) ?? [];
  const answers = namesIn(patterns.join('\n'), /\b([A-Z]{3,})\b/g).filter(
    (word) => !/^(ERR|CERT|SELF|TLS|UNABLE|ACL|E[A-Z]+)$/.test(word ?? ''),
  );
  expect(answers).toContain('READONLY');
  expect(answers.length).toBeGreaterThan(6);
  expect(answers.filter((answer) => !PAGE.includes(`\`${answer}\``))).toEqual([]);
});

describe('the page of the events', () => {
  const EVENTS = readFileSync(join(REPOSITORY, 'docs/guide/events.md'), 'utf8');

  const cellsOf = (row: string) =>
    row.split('|').map((cell) => Array.from(cell.matchAll(/`([\w:-]+)`/g), ([, name = '']) => name));
  const kebab = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

  /** `lock:attempt | attempt | call,wait` for each row of the page's tables, whose heads say what the rows share. */
  function documented(): string[] {
    const tables = EVENTS.matchAll(/^\| `\w+`, `[\w-]+:` .*\n\| -.*\n((?:\|.*\n)+)/gm);
    return [...tables].flatMap(([table, rows = '']) => {
      const [, [, group = ''] = [], shared = []] = cellsOf(table.split('\n')[0] ?? '');
      return rows
        .trim()
        .split('\n')
        .map((row) => {
          const [, [name = ''] = [], own = []] = cellsOf(row);
          return `${group}${kebab(name)} | ${name} | ${[...shared, ...own].toSorted().join(',')}`;
        });
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
});
