import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

/** What the samples take as given. */
const GIVEN = `
import type { CacheService as Cache } from 'nest-redis-lock';
declare global {
  interface Product { readonly id: number; readonly name: string; readonly shop: string }
  interface Rate { readonly provisional: boolean; readonly validFor: number }
  const cache: Cache;
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
  const accounts: { balance(id: number): Promise<bigint> };
  function fetchRate(currency: string, options: { signal: AbortSignal }): Promise<Rate>;
  function makeReport(signal: AbortSignal): Promise<string>;
}
`;

const IMPORTS = {
  '@nestjs/common': ['Controller', 'Get', 'Injectable', 'Param', 'UseInterceptors'],
  'nest-redis-lock': [
    'Cached',
    'CacheEvict',
    'CacheHeadersInterceptor',
    'CachePut',
    'instancesOf',
    'RedisLockModule',
    'type CacheSerializer',
  ],
};

/** Every sample of a document, as a module of its own: with the imports that it does not write itself. */
function samplesOf(document: string): Map<string, string> {
  const text = readFileSync(join(REPOSITORY, document), 'utf8');
  const samples = new Map<string, string>();
  for (const { 1: code = '', index } of text.matchAll(/^```ts\n([\s\S]*?)^```/gm)) {
    const line = text.slice(0, index).split('\n').length;
    const imports = Object.entries(IMPORTS).map(([from, names]) => `import { ${names.join(', ')} } from '${from}';`);
    const before = /^import /m.test(code) ? '' : imports.join(' ');
    samples.set(
      join(REPOSITORY, `test/types/${document.replaceAll('/', '-')}-line-${line}.ts`),
      `${before}export {};${code}`,
    );
  }
  return samples;
}

function problemsOf(files: ReadonlyMap<string, string>): string[] {
  const config = ts.readConfigFile(join(REPOSITORY, 'tsconfig.json'), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config.config, ts.sys, REPOSITORY);
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists, readFile } = host;
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
  const program = ts.createProgram([...files.keys()], { ...options, noUnusedLocals: false }, host);
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

const given: [string, string] = [join(REPOSITORY, 'test/types/given.ts'), GIVEN];

it('has samples of the cache that compile', () => {
  const samples = samplesOf('docs/cache.md');
  expect(samples.size).toBeGreaterThan(20);
  expect(problemsOf(new Map([given, ...samples]))).toEqual([]);
}, 120_000);

it('would tell of one that does not', () => {
  const broken = new Map([given, [join(REPOSITORY, 'test/types/broken.ts'), 'export {}; await cache.get(7);']]);
  expect(problemsOf(broken)).toEqual([expect.stringContaining("'number' is not assignable")]);
}, 120_000);
