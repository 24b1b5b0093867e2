import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, stat } from 'node:fs/promises';
import { isBuiltin } from 'node:module';
import { fileURLToPath } from 'node:url';
import { packagesLoadedBy, packagesReachedFrom } from './support/imports.js';
import { tarball, workplace } from './support/packed.js';
import { run } from './support/run.js';

interface Manifest {
  dependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
  peerDependenciesMeta?: object;
}

const PAGES = ['CHANGELOG.md', 'README.md'];
const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

const OF_NEST = [
  '@nestjs/common',
  '@nestjs/common/constants.js',
  '@nestjs/common/enums/route-paramtypes.enum.js',
  '@nestjs/core',
  'rxjs',
];

/** What `require` of each entry point loads at once, but for modules of Node.js. */
const LOADED: Readonly<Record<string, readonly string[]>> = {
  index: OF_NEST,
  backend: [],
  events: [],
  testing: OF_NEST,
  memory: [],
  redlock: ['@nestjs/common'],
  postgres: ['@nestjs/common', 'pg'],
  mysql: ['@nestjs/common', 'mysql2'],
  etcd: ['@nestjs/common', 'undici'],
  zookeeper: ['@nestjs/common', 'node-zookeeper-client'],
  prometheus: ['@nestjs/common', 'rxjs'],
  terminus: ['@nestjs/common', '@nestjs/terminus'],
  opentelemetry: ['@nestjs/common', '@opentelemetry/api', 'rxjs'],
  admin: ['@nestjs/common'],
};

const ENTRIES = Object.keys(LOADED);

beforeAll(async () => {
  await mkdir(workplace('tarball'));
  await run('tar', ['-xzf', tarball()], { cwd: workplace('tarball') });
});

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map(({ parentPath, name }) => `${parentPath}/${name}`.slice(folder.length + 1)).toSorted();
}

it('contains the entry points, what they share, and nothing else', async () => {
  const built = ENTRIES.flatMap((entry) =>
    ['', 'cjs/'].flatMap((folder) => [`${folder}${entry}.js`, `${folder}${entry}.d.ts`]),
  );
  const others = ['cjs/cli.js', 'cjs/nest.js', 'cjs/package.json', 'THIRD-PARTY-NOTICES.txt'];
  const files = await filesBelow(workplace('tarball/package'));
  const shared = /^dist\/cjs\/(chunks\/[\w.-]+\.(js|d\.ts)|given-nest\/\w+\.js)$/;
  expect(files.filter((file) => !shared.test(file))).toEqual(
    [
      ...PAGES,
      'LICENSE',
      'docs/postgres.sql',
      'package.json',
      ...[...built, ...others].map((file) => `dist/${file}`),
    ].toSorted(),
  );
  expect(files.length).toBeLessThanOrEqual(110);
  expect((await stat(tarball())).size).toBeLessThanOrEqual(600_000);
});

it('has the licences of the packages that it contains', async () => {
  const notices = await readFile(workplace('tarball/package/dist/THIRD-PARTY-NOTICES.txt'), 'utf8');
  const contained = Array.from(notices.matchAll(/^This package contains (\S+)/gm), ([, name]) => name);
  expect(contained).toEqual(['cluster-key-slot', 'etag', 'fresh', 'lru-cache', 'ms', 'msgpackr']);
  const licence = await readFile(`${REPOSITORY}node_modules/msgpackr/LICENSE`, 'utf8');
  expect(notices).toContain(licence.trim());
});

const RELATIVE_LINK = /\]\((?!https?:|#)[^)]+\)|src(?:set)?="(?!https?:)[^"]+"/g;

it.each(PAGES)('has no link in %s to a file that it lacks', async (page) => {
  const text = await readFile(workplace('tarball/package', page), 'utf8');
  expect(text.length).toBeGreaterThan(4_000);
  expect(text.match(RELATIVE_LINK)).toBeNull();
});

it('links to files of the repository by URL, where it has one', async () => {
  const folder = workplace('with-url');
  await mkdir(folder);
  const packed = await run('node', ['tools/pack.mjs', folder, 'https://example.org/a/b'], { cwd: REPOSITORY });
  const read = (file: string) => run('tar', ['-xzOf', packed.trim(), `package/${file}`], { cwd: folder });
  for (const page of PAGES) {
    const text = await read(page);
    expect(text.match(RELATIVE_LINK)).toBeNull();
    const links = text.matchAll(/https:\/\/example\.org\/a\/b\/(?:blob|raw)\/v[\d.]+\/([^)#"]+)/g);
    const paths = Array.from(links, ([, path = '']) => path);
    expect(paths.length).toBeGreaterThan(10);
    expect(paths.filter((path) => !existsSync(REPOSITORY + path))).toEqual([]);
  }
  expect(JSON.parse(await read('package.json'))).toMatchObject({
    repository: { url: 'git+https://example.org/a/b.git' },
  });
});

it('points to no source map, of which it has none', async () => {
  const built = await filesBelow(workplace('tarball/package/dist'));
  const texts = await Promise.all(built.map((file) => readFile(workplace('tarball/package/dist', file), 'utf8')));
  expect(built.filter((_file, index) => texts[index]?.includes('sourceMappingURL'))).toEqual([]);
});

const OF_USERS = ['@nestjs/common', '@nestjs/core', 'reflect-metadata', 'rxjs'];
const CLIENTS_OF_STORES = ['@redis/client', 'ioredis', 'mysql2', 'node-zookeeper-client', 'pg', 'undici'];
const OF_OPERATION = ['@nestjs/terminus', '@opentelemetry/api', 'prom-client'];
const OF_THE_COMMAND_LINE = ['cli-table3', 'commander'];

/** The packages that all declarations may name: those of main, whose types the others use. */
const OF_ALL_TYPES = ['@nestjs/common', '@nestjs/core', 'ioredis', 'rxjs'];
/** What the declarations of an entry point name beside them. */
const OF_TYPES: Readonly<Record<string, readonly string[]>> = {
  postgres: ['pg'],
  mysql: ['mysql2', 'mysql2/promise'],
  prometheus: ['prom-client'],
  terminus: ['@nestjs/terminus'],
  opentelemetry: ['@opentelemetry/api'],
};

describe.each(ENTRIES)('%s', (entry) => {
  const file = (path: string) => workplace('tarball/package/dist', path);
  const ofOthers = (packages: readonly string[]) => packages.filter((name) => !isBuiltin(name));

  it('loads these packages and no other', async () => {
    expect(ofOthers(await packagesLoadedBy(file(`cjs/${entry}.js`)))).toEqual(LOADED[entry]);
  });

  it('loads them for `import`, too', async () => {
    expect(ofOthers(await packagesLoadedBy(file(`${entry}.js`)))).toEqual(
      LOADED[entry]?.filter((name) => name.startsWith('@nestjs/')),
    );
  });

  it('has declarations that name these packages and no other', async () => {
    const named = ofOthers(await packagesReachedFrom(file(`${entry}.d.ts`)));
    expect(named.filter((name) => !OF_ALL_TYPES.includes(name))).toEqual(OF_TYPES[entry] ?? []);
  });
});

it('declares the packages that it reaches', async () => {
  const { dependencies, peerDependencies, peerDependenciesMeta } = JSON.parse(
    await readFile(workplace('tarball/package/package.json'), 'utf8'),
  ) as Manifest;
  expect(Object.keys(dependencies)).toEqual(OF_THE_COMMAND_LINE);
  const optional = [...CLIENTS_OF_STORES, ...OF_OPERATION].toSorted();
  expect(Object.keys(peerDependencies)).toEqual([...OF_USERS, ...optional].toSorted());
  expect(Object.keys(peerDependenciesMeta ?? {})).toEqual(optional);
});

it('is sound to publint', async () => {
  const said = await run('node_modules/.bin/publint', ['run', tarball(), '--strict'], { cwd: REPOSITORY });
  expect(said).toMatch(/All good!/);
});

it('has types that agree with what every kind of consumer loads', async () => {
  const said = await run('node_modules/.bin/attw', [tarball(), '--format', 'json'], { cwd: REPOSITORY });
  expect(JSON.parse(said)).toMatchObject({ analysis: { problems: [] } });
});
