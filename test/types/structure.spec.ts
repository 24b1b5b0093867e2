import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import ts from 'typescript';

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));
const LIB = join(REPOSITORY, 'lib');
const HOPS = join(REPOSITORY, 'test/bench/hops/main.mjs');
const MOST_LINES = 400;
const MOST_FILES = 20;

/** What a later change may lower and never raise. */
const CEILINGS = JSON.parse(readFileSync(join(REPOSITORY, 'test/types/ceilings.json'), 'utf8')) as {
  files: number;
  filesWithOneImporter: number;
  folders: number;
  exports: Record<string, number>;
  trips: Record<string, Trip>;
};

/** What one call runs of the library. */
interface Trip {
  files: number;
  functions: number;
}

interface NamedTrip extends Trip {
  title: string;
}

interface Import {
  readonly to: string;
  readonly type: boolean;
}

const FILES: ReadonlyMap<string, readonly Import[]> = new Map(
  readdirSync(LIB, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .toSorted()
    .map((path) => [path, importsOf(path)]),
);

it('makes the text of what was thrown in one place, which never throws', () => {
  const elsewhere = Array.from(FILES.keys()).filter((path) => {
    const text = readFileSync(join(LIB, path), 'utf8');
    return path !== 'errors/limited-log.ts' && /\bString\((?:error|cause|thrown|reason|problem)\)/.test(text);
  });
  expect(elsewhere).toEqual([]);
});

it('has files and folders that are read in one sitting', () => {
  expect(FILES.size).toBeGreaterThan(200);
  const long = [...FILES.keys()].filter((path) => linesOf(path) > MOST_LINES);
  const crowded = [...filesByFolder()].filter(([, files]) => files.length > MOST_FILES).map(([folder]) => folder);
  expect({ long, crowded }).toEqual({ long: [], crowded: [] });
});

it('has no cycle of folders, types included, and none of files by value', () => {
  const edges = [...FILES].flatMap(([from, imports]) => imports.map(({ to, type }) => ({ from, to, type })));
  expect(edges.length).toBeGreaterThan(1_000);
  const folders = edges.map(({ from, to }) => [dirname(from), dirname(to)] as const);
  const values = edges.filter(({ type }) => !type).map(({ from, to }) => [from, to] as const);
  expect({ folders: cyclesOf(folders), files: cyclesOf(values) }).toEqual({ folders: [], files: [] });
});

it('finds the cycles that there are', () => {
  const line = ['a', 'b'] as const;
  expect(cyclesOf([line, ['b', 'c'], ['c', 'a'], ['c', 'd'], ['d', 'd']])).toEqual([['a', 'b', 'c']]);
  expect(cyclesOf([line, ['a', 'c'], ['b', 'd'], ['c', 'd']])).toEqual([]);
});

it('does not grow: files, files with one importer, folders and exports', () => {
  const reports = join(REPOSITORY, 'docs/api-report');
  const exportsOf = (report: string) => [...readFileSync(join(reports, report), 'utf8').matchAll(/^export /gm)].length;
  const measured = {
    files: FILES.size,
    filesWithOneImporter: filesWithOneImporter().length,
    folders: filesByFolder().size,
    exports: Object.fromEntries(readdirSync(reports).map((report) => [report.split('.')[0], exportsOf(report)])),
  };
  // Equal: a change that lowers a number lowers its ceiling, too.
  expect({ ...measured, trips: CEILINGS.trips }).toEqual(CEILINGS);
});

it('does not lengthen the way of a call', async () => {
  const isLonger = ({ title, files, functions }: NamedTrip) => {
    const most = CEILINGS.trips[title];
    return !most || files > most.files || functions > most.functions;
  };
  // Timers that come in between add functions, on a busy machine to each call of a run. The least counts.
  const least = new Map<string, NamedTrip>();
  for (let run = 0; run < 4 && (run === 0 || [...least.values()].some(isLonger)); run++) {
    for (const trip of await measuredTrips()) {
      if (trip.functions < (least.get(trip.title)?.functions ?? Infinity)) least.set(trip.title, trip);
    }
  }
  expect([...least.keys()].toSorted()).toEqual(Object.keys(CEILINGS.trips).toSorted());
  expect([...least.values()].filter(isLonger)).toEqual([]);
});

async function measuredTrips(): Promise<readonly NamedTrip[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [HOPS, '--json']);
  return JSON.parse(stdout) as NamedTrip[];
}

it('has an architecture page that names files and folders which exist', () => {
  const page = readFileSync(join(REPOSITORY, 'docs/architecture.md'), 'utf8');
  const files = [...FILES.keys()].map((path) => `/lib/${path}`);
  const exists = (path: string) =>
    files.some((file) => (path.endsWith('/') ? file.includes(`/${path}`) : file.endsWith(`/${path}`)));
  const named = [...page.matchAll(/`((?:[\w-]+\/)*[\w.-]+\.ts|(?:[\w-]+\/)+)`/g)].map(([, path]) => path as string);
  const ofTests = (path: string) => existsSync(join(REPOSITORY, path.startsWith('test/') ? path : `test/${path}`));
  expect(named.length).toBeGreaterThan(30);
  expect(named.filter((path) => !ofTests(path) && !exists(path))).toEqual([]);
});

function linesOf(path: string): number {
  return readFileSync(join(LIB, path), 'utf8').split('\n').length - 1;
}

function filesByFolder(): Map<string, string[]> {
  const folders = new Map<string, string[]>();
  for (const path of FILES.keys()) folders.set(dirname(path), [...(folders.get(dirname(path)) ?? []), path]);
  return folders;
}

/** An entry point has none, and the scripts of a subject stand in one file, whatever imports it. */
function filesWithOneImporter(): string[] {
  const importers = new Map<string, Set<string>>();
  for (const [from, imports] of FILES)
    for (const { to } of imports) importers.set(to, (importers.get(to) ?? new Set()).add(from));
  return [...importers]
    .filter(([path, from]) => from.size === 1 && basename(path) !== 'index.ts' && !/\.(lua|sql)\.ts$/.test(path))
    .map(([path]) => path);
}

function importsOf(path: string): readonly Import[] {
  const file = join(LIB, path);
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest);
  const found: Import[] = [];
  const add = (specifier: ts.Node | undefined, type: boolean) => {
    if (!specifier || !ts.isStringLiteralLike(specifier) || !specifier.text.startsWith('.')) return;
    const to = relative(LIB, join(dirname(file), specifier.text.replace(/\.js$/, '.ts')));
    if (to !== path) found.push({ to, type });
  };
  const visit = (node: ts.Node) => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, hasOnlyTypes(node.importClause));
    else if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      add(node.arguments[0], false);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal, true);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

function hasOnlyTypes(clause: ts.ImportClause | undefined): boolean {
  if (!clause || clause.name) return false;
  const names = clause.namedBindings;
  return (
    clause.phaseModifier === ts.SyntaxKind.TypeKeyword ||
    (names !== undefined && ts.isNamedImports(names) && names.elements.every(({ isTypeOnly }) => isTypeOnly))
  );
}

/** Groups of nodes that reach one another: the strongly connected components of more than one node (Tarjan, 1972). */
function cyclesOf(edges: readonly (readonly [string, string])[]): string[][] {
  const next = new Map<string, Set<string>>();
  for (const [from, to] of edges) {
    if (from !== to) next.set(from, (next.get(from) ?? new Set()).add(to));
  }
  const index = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (node: string): number => {
    const own = index.size;
    index.set(node, own);
    lowest.set(node, own);
    stack.push(node);
    for (const each of next.get(node) ?? []) {
      if (!index.has(each)) lowest.set(node, Math.min(lowest.get(node) ?? own, visit(each)));
      else if (stack.includes(each)) lowest.set(node, Math.min(lowest.get(node) ?? own, index.get(each) ?? own));
    }
    if (lowest.get(node) === own) {
      const group = stack.splice(stack.indexOf(node));
      if (group.length > 1) cycles.push(group.toSorted());
    }
    return lowest.get(node) ?? own;
  };
  for (const node of next.keys()) if (!index.has(node)) visit(node);
  return cycles;
}
