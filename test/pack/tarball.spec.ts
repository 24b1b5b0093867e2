import { mkdir, readdir, readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packagesReachedFrom } from './support/imports.js';
import { tarball, workplace } from './support/packed.js';
import { run } from './support/run.js';

interface Manifest {
  dependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
  peerDependenciesMeta?: object;
}

const REPOSITORY = fileURLToPath(new URL('../..', import.meta.url));

beforeAll(async () => {
  await mkdir(workplace('tarball'));
  await run('tar', ['-xzf', tarball()], { cwd: workplace('tarball') });
});

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map(({ parentPath, name }) => `${parentPath}/${name}`.slice(folder.length + 1)).toSorted();
}

it('contains the build of every source, twice but for the command line, and nothing else', async () => {
  const modules = (await filesBelow(`${REPOSITORY}lib`)).map((file) => file.replace(/\.ts$/, ''));
  const built = modules.flatMap((module) =>
    (module.startsWith('cli/') ? ['dist'] : ['dist', 'dist/cjs']).flatMap((folder) => [
      `${folder}/${module}.js`,
      `${folder}/${module}.d.ts`,
    ]),
  );
  // Without the reference and the report of the API, which are made from the types that are there.
  const pages = (await filesBelow(`${REPOSITORY}docs`)).filter((file) => !/^api(-report)?\//.test(file));
  const docs = pages.map((file) => `docs/${file}`);
  const others = [
    'LICENSE',
    'README.md',
    'CHANGELOG.md',
    'CONTRIBUTING.md',
    'package.json',
    'dist/cjs/package.json',
    ...docs,
  ];
  expect(await filesBelow(workplace('tarball/package'))).toEqual([...built, ...others].toSorted());
});

it('has the pages and images that its pages link to, of the sources only the build', async () => {
  const root = workplace('tarball/package');
  const pages = [
    'README.md',
    ...(await filesBelow(join(root, 'docs'))).filter((file) => file.endsWith('.md')).map((file) => `docs/${file}`),
  ];
  const links = await Promise.all(
    pages.map(async (page) => {
      const text = await readFile(join(root, page), 'utf8');
      return Array.from(text.matchAll(/\]\((?!https?:|#)([^)#\s]+)/g), ([, link = '']) =>
        normalize(join(dirname(page), link)),
      );
    }),
  );
  const packed = await filesBelow(root);
  const missing = links.flat().filter((link) => /\.md$|^docs\/|^LICENSE/.test(link) && !packed.includes(link));
  expect(missing).toEqual([]);
});

it('points to no source map, of which it has none', async () => {
  const built = await filesBelow(workplace('tarball/package/dist'));
  const texts = await Promise.all(built.map((file) => readFile(workplace('tarball/package/dist', file), 'utf8')));
  expect(built.filter((_file, index) => texts[index]?.includes('sourceMappingURL'))).toEqual([]);
});

const OF_USERS = ['@nestjs/common', '@nestjs/core', 'ioredis', 'rxjs'];
const CLIENTS_OF_STORES = ['@redis/client', 'mysql2', 'node-zookeeper-client', 'pg', 'undici'];
const OF_OPERATION = ['@nestjs/terminus', '@opentelemetry/api', 'prom-client'];
const OPTIONAL = [...CLIENTS_OF_STORES, ...OF_OPERATION];
const OF_OURS = ['cluster-key-slot', 'lru-cache', 'ms'];
const OF_THE_COMMAND_LINE = ['cli-table3', 'commander'];
const FOR_HEADERS = ['@nestjs/common/constants.js', '@nestjs/common/enums/route-paramtypes.enum.js', 'etag', 'fresh'];

describe.each(['dist', 'dist/cjs'])('what %s reaches', (dist) => {
  const index = (path: string) => packagesReachedFrom(workplace('tarball/package', dist, path));

  it('is these packages and no other', async () => {
    const packages = [
      ...OF_USERS,
      ...OF_OURS,
      'node:async_hooks',
      'node:crypto',
      'node:diagnostics_channel',
      'node:events',
      'node:http',
      'node:net',
      'node:os',
      'node:path',
      'node:timers/promises',
      'node:url',
      'node:util',
      'node:zlib',
    ];
    const streams = ['node:stream', 'node:stream/promises'];
    expect(await index('index.js')).toEqual([...packages, ...streams, ...FOR_HEADERS].toSorted());
    expect(await index('testing/index.js')).toEqual([...packages, 'node:assert/strict', 'node:stream'].toSorted());
  });

  it('is fewer of them for the types', async () => {
    expect(await index('index.d.ts')).toEqual([
      '@nestjs/common',
      '@nestjs/core',
      'ioredis',
      'node:async_hooks',
      'node:events',
      'node:http',
      'node:stream',
      'rxjs',
    ]);
    expect(await index('testing/index.d.ts')).toEqual([
      '@nestjs/common',
      'ioredis',
      'node:async_hooks',
      'node:events',
      'rxjs',
    ]);
  });

  it('is pg for PostgreSQL, and no Redis client', async () => {
    const reached = await index('backends/postgres/index.js');
    expect(reached).toEqual(['@nestjs/common', 'ms', 'node:crypto', 'node:http', 'node:net', 'pg']);
    expect(await index('backends/postgres/index.d.ts')).toEqual(['pg']);
  });

  it('is mysql2 for MySQL, and no Redis client', async () => {
    const reached = await index('backends/mysql/index.js');
    expect(reached).toEqual(['@nestjs/common', 'ms', 'mysql2', 'node:crypto', 'node:http']);
    expect(await index('backends/mysql/index.d.ts')).toEqual(['mysql2', 'mysql2/promise']);
  });

  it('is undici for etcd, and no Redis client, and none for the types', async () => {
    const reached = await index('backends/etcd/index.js');
    const ofNode = ['node:http', 'node:string_decoder'];
    expect(reached).toEqual(['@nestjs/common', 'ms', ...ofNode, 'undici']);
    expect(await index('backends/etcd/index.d.ts')).toEqual([]);
  });

  it('is node-zookeeper-client for ZooKeeper, and no Redis client, and none for the types', async () => {
    const reached = await index('backends/zookeeper/index.js');
    expect(reached).toEqual([
      '@nestjs/common',
      'ms',
      'node-zookeeper-client',
      'node:crypto',
      'node:events',
      'node:http',
      'node:net',
    ]);
    expect(await index('backends/zookeeper/index.d.ts')).toEqual([]);
  });

  it.each([
    { subpath: 'prometheus', packages: ['@nestjs/common', 'ms', 'node:diagnostics_channel', 'node:http'] },
    { subpath: 'prometheus', packages: ['@nestjs/common', 'prom-client'], types: true },
    { subpath: 'opentelemetry', packages: ['@nestjs/common', '@opentelemetry/api'], types: true },
    { subpath: 'terminus', packages: ['@nestjs/common', '@nestjs/terminus'], types: true },
  ])('is $packages for $subpath, and no client of a store', async ({ subpath, packages, types }) => {
    const reached = await index(`observability/${subpath}/index.${types ? 'd.ts' : 'js'}`);
    expect(reached).toEqual(packages);
  });
});

it.each(['dist', 'dist/cjs'])('has msgpackr in %s, with its licence', async (dist) => {
  const packer = await readFile(workplace('tarball/package', dist, 'cache/values/packer.js'), 'utf8');
  const licence = await readFile(join(REPOSITORY, 'node_modules/msgpackr/LICENSE'), 'utf8');
  expect(packer).toContain(licence.trim());
});

it('declares the packages that it reaches', async () => {
  const { dependencies, peerDependencies, peerDependenciesMeta } = JSON.parse(
    await readFile(workplace('tarball/package/package.json'), 'utf8'),
  ) as Manifest;
  expect(Object.keys(dependencies)).toEqual([...OF_OURS, ...OF_THE_COMMAND_LINE, 'etag', 'fresh'].toSorted());
  expect(Object.keys(peerDependencies)).toEqual(expect.arrayContaining(OF_USERS));
  const optional = Object.keys(peerDependenciesMeta ?? {});
  expect(optional).toEqual(Object.keys(peerDependencies).filter((name) => OPTIONAL.includes(name)));
});

it('is sound to publint', async () => {
  const said = await run('node_modules/.bin/publint', ['run', tarball(), '--strict'], { cwd: REPOSITORY });
  expect(said).toMatch(/All good!/);
});

it('has types that agree with what every kind of consumer loads', async () => {
  const said = await run('node_modules/.bin/attw', [tarball(), '--format', 'json'], { cwd: REPOSITORY });
  expect(JSON.parse(said)).toMatchObject({ analysis: { problems: [] } });
});
