import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));
/** In memory. It stands among the tests, so that it finds `nest-redis-lock` as they do. */
const FILE = join(REPOSITORY, 'test/types/hover.sample.ts');

/** The type of the options of each decorator. */
const OPTIONS: Readonly<Record<string, string>> = {
  DistributedLock: 'DistributedLockOptions',
  Cached: 'CachedOptions',
  CachePut: 'CachePutOptions',
  CacheEvict: 'CacheEvictOptions',
  Semaphore: 'SemaphoreMethodOptions',
  RateLimit: 'RateLimitedOptions',
  Idempotent: 'IdempotentOptions',
  OnlyLeader: 'OnlyLeaderOptions',
  ScheduledLock: 'ScheduleOptions',
};
const SERVICES = ['LockService', 'CacheService', 'SemaphoreService', 'RateLimiter', 'LeaderElection', 'ScheduledJobs'];
const OTHERS = ['CountDownLatch', 'IdempotencyService', 'RedisLockModuleOptions', 'CacheOptions', 'RateLimitOptions'];
const TYPES = [...Object.values(OPTIONS), ...SERVICES, ...OTHERS];

/** By these an editor tells the members of a union apart. */
const DECIDING: Readonly<Record<string, string>> = { limit: '1', per: "'1s'", limits: '[]' };

/** An editor with one open file. */
class Editor {
  private text = '';
  private version = 0;
  private readonly service: ts.LanguageService;

  constructor() {
    const { config } = ts.readConfigFile(join(REPOSITORY, 'tsconfig.json'), ts.sys.readFile) as { config: object };
    const { options } = ts.parseJsonConfigFileContent({ ...config, include: [], files: [FILE] }, ts.sys, REPOSITORY);
    const textOf = (path: string) => (path === FILE ? this.text : ts.sys.readFile(path));
    this.service = ts.createLanguageService({
      getScriptFileNames: () => [FILE],
      getScriptVersion: (path) => (path === FILE ? String(this.version) : '0'),
      getScriptSnapshot: (path) => ts.ScriptSnapshot.fromString(textOf(path) ?? ''),
      getCurrentDirectory: () => REPOSITORY,
      getCompilationSettings: () => options,
      getDefaultLibFileName: ts.getDefaultLibFilePath,
      fileExists: (path) => path === FILE || ts.sys.fileExists(path),
      readFile: textOf,
    });
  }

  write(...lines: readonly string[]): ts.Program {
    this.text = lines.join('\n');
    this.version += 1;
    return this.service.getProgram() as ts.Program;
  }

  /** Whether the pointer shows a comment there. */
  explains(index: number): boolean {
    return (this.service.getQuickInfoAtPosition(FILE, index)?.documentation?.length ?? 0) > 0;
  }
}

const IMPORT = "import * as all from 'nest-redis-lock';";
const editor = new Editor();
const program = editor.write(IMPORT, ...TYPES.map((type) => `declare const of${type}: all.${type};`));
const checker = program.getTypeChecker();
const source = program.getSourceFile(FILE) as ts.SourceFile;

/** The public properties of a type, for each member if it is a union. */
function propertiesOf(name: string): ts.Symbol[][] {
  const symbol = checker.resolveName(`of${name}`, source, ts.SymbolFlags.Value, false) as ts.Symbol;
  const type = checker.getTypeOfSymbol(symbol);
  return (type.isUnion() ? type.types : [type]).map((each) => each.getProperties().filter(isPublic));
}

/** Neither private nor internal, nor a hook of Nest. */
function isPublic(symbol: ts.Symbol): boolean {
  const [declaration] = symbol.declarations ?? [];
  const modifiers = declaration ? ts.getCombinedModifierFlags(declaration) : ts.ModifierFlags.None;
  if (modifiers & ts.ModifierFlags.NonPublicAccessibilityModifier) return false;
  if (symbol.getJsDocTags().some((tag) => tag.name === 'internal')) return false;
  return !/^(on(Module|Application)|before)[A-Z]/.test(symbol.name);
}

const isBare = (symbol: ts.Symbol) => symbol.getDocumentationComment(checker).length === 0;

it('every value that the package exports has a comment', () => {
  const all = checker.resolveName('all', source, ts.SymbolFlags.Alias, false) as ts.Symbol;
  const values = checker
    .getExportsOfModule(checker.getAliasedSymbol(all))
    .map((each) => (each.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(each) : each))
    .filter(({ flags }) => flags & ts.SymbolFlags.Value);
  expect(values.length).toBeGreaterThan(60);
  expect(values.filter(isBare).map(({ name }) => name)).toEqual([]);
});

it('every option, and every method of a service, has a comment', () => {
  const bare = TYPES.flatMap((type) =>
    propertiesOf(type).flatMap((some) => some.filter(isBare).map(({ name }) => `${type}.${name}`)),
  );
  expect(bare).toEqual([]);
});

it('an editor shows the comment of an option where a decorator is given it', () => {
  const isGiven = (option: ts.Symbol) => checker.typeToString(checker.getTypeOfSymbol(option)) !== 'undefined';
  const uses = Object.entries(OPTIONS).flatMap(([decorator, type]) =>
    propertiesOf(type).map((some) => {
      const given = some.filter(isGiven).map(({ name }) => `${name}: ${DECIDING[name] ?? 'given'}`);
      return `all.${decorator}('a', { ${given.join(', ')} });`;
    }),
  );
  const inside = [
    "all.RateLimit('a', { limits: [{ limit: given, per: given, burst: given }] });",
    "all.DistributedLock('a', { renew: { interval: given, timeout: given } });",
    "all.Cached('a', { lock: { lease: given, renew: given, wait: given, onTimeout: given } });",
  ];
  const lines = [IMPORT, 'declare var given;', ...uses, ...inside];
  editor.write(...lines);
  const places = [...lines.join('\n').matchAll(/all\.(\w+)\(|(\w+):/g)];
  expect(places.length).toBeGreaterThan(60);
  let decorator = '';
  const bare: string[] = [];
  for (const { 1: called, 2: option, index } of places) {
    decorator = called ?? decorator;
    if (!editor.explains(called ? index + 'all.'.length : index)) bare.push(`${decorator} ${option ?? ''}`);
  }
  expect(bare).toEqual([]);
});
