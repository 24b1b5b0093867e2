import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Child } from '../../support/child.js';

describe('the code that is loaded', () => {
  const PROGRAM = fileURLToPath(new URL('../../support/programs/locks-once.mjs', import.meta.url));
  const TELLER = fileURLToPath(new URL('../../support/programs/tells-scripts.cjs', import.meta.url));

  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'nest-redis-lock-loaded-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  const applications = new Map<string, Promise<string>>();

  /** The files that were loaded by an application that takes one lock. */
  function filesLoaded(how: string, cache?: object | false): Promise<string> {
    const args = [PROGRAM, how, ...(cache === undefined ? [] : [JSON.stringify(cache)])];
    const known = applications.get(args.join(' ')) ?? filesLoadedBy(args);
    applications.set(args.join(' '), known);
    return known;
  }

  /** The files that Node.js loaded with these arguments; V8 tells them. */
  async function filesLoadedBy(args: readonly string[]): Promise<string> {
    const file = join(folder, randomUUID());
    await promisify(execFile)(process.execPath, ['--require', TELLER, ...args], {
      env: { ...process.env, LOADED: file },
    });
    return readFile(file, 'utf8');
  }

  describe.each(['import', 'require'])('with %s', (how) => {
    it('locks alone load no code of the cache', async () => {
      const loaded = await filesLoaded(how, false);
      expect(loaded).toMatch('/chunks/lock.service.js');
      expect(loaded).not.toMatch(/\/chunks\/(cache-engine|first-level|lru-cache)\.js/);
    });

    it('locks and a cache in memory load no client of a store', async () => {
      const clients = /\/node_modules\/(ioredis|pg|mysql2|@redis|node-zookeeper-client)[/-]/;
      expect(await filesLoaded(how)).not.toMatch(clients);
    });

    it('the main entry loads no code of the command line', async () => {
      const loaded = await filesLoaded(how);
      expect(loaded).toMatch('/chunks/lock.service.js');
      expect(loaded).not.toMatch(/\/dist\/cjs\/cli\.js|\/node_modules\/(commander|cli-table3)\//);
    });

    it('a cache without a first level does not load its library', async () => {
      const loaded = await filesLoaded(how);
      expect(loaded).toMatch('/chunks/cache-engine.js');
      expect(loaded).not.toMatch(/\/chunks\/(first-level|lru-cache)\.js/);
    });

    it.each([{ l1: {} }, { memory: {} }])('a cache with %j loads it', async (cache) => {
      expect(await filesLoaded(how, cache)).toMatch('/chunks/lru-cache.js');
    });
  });

  type How = 'import' | 'require';
  interface Manifest {
    readonly dependencies: Readonly<Record<string, string>>;
    readonly peerDependencies: Readonly<Record<string, string>>;
    readonly exports: Readonly<Record<string, string | Readonly<Record<How, { readonly default: string }>>>>;
  }

  const ROOT = new URL('../../../', import.meta.url);
  const NEST = ['@nestjs/common', 'reflect-metadata', 'rxjs'];

  /** What each subpath loads at its start, of the packages that package.json names. */
  const LOADED: readonly (readonly [subpath: string, packages: readonly string[]])[] = [
    ['.', ['@nestjs/core', ...NEST]],
    ['./backend', []],
    ['./events', []],
    ['./memory', []],
    ['./redlock', NEST],
    ['./testing', ['@nestjs/core', ...NEST]],
    ['./mysql', ['mysql2', ...NEST]],
    ['./postgres', ['pg', ...NEST]],
    ['./etcd', ['undici', ...NEST]],
    ['./zookeeper', ['node-zookeeper-client', ...NEST]],
    ['./prometheus', NEST],
    ['./terminus', ['@nestjs/core', '@nestjs/terminus', ...NEST]],
    ['./opentelemetry', ['@opentelemetry/api', ...NEST]],
    ['./admin', NEST],
  ];

  describe('a subpath', () => {
    let manifest: Manifest;
    beforeAll(async () => {
      manifest = JSON.parse(await readFile(new URL('package.json', ROOT), 'utf8')) as Manifest;
    });

    it('is in this table', () => {
      const code = Object.entries(manifest.exports).filter(([, target]) => typeof target === 'object');
      expect(LOADED.map(([subpath]) => subpath).toSorted()).toEqual(code.map(([subpath]) => subpath).toSorted());
    });

    it.each(
      LOADED.flatMap(([subpath, packages]) =>
        (['import', 'require'] as const).map((how) => ({ subpath, how, packages })),
      ),
    )('$subpath loads these and no other packages with $how: $packages', async ({ subpath, how, packages }) => {
      const targets = manifest.exports[subpath] as Record<How, { default: string }>;
      const file = JSON.stringify(fileURLToPath(new URL(targets[how].default, ROOT)));
      const program =
        how === 'import' ? ['--input-type=module', '-e', `await import(${file})`] : ['-e', `require(${file})`];
      const loaded = await filesLoadedBy(program);
      const named = Object.keys({ ...manifest.dependencies, ...manifest.peerDependencies });
      expect(named.filter((name) => loaded.includes(`/node_modules/${name}/`)).toSorted()).toEqual(packages.toSorted());
      expect(loaded).toMatch(targets[how].default.slice(1));
    });
  });
});

describe('two copies of the package', () => {
  /** Of a class that another copy decorates, in an application with the module of this one. */
  let answers: Record<string, string> & { paths: { here: string; other: string } };
  beforeAll(async () => {
    const child = Child.run(fileURLToPath(new URL('../../support/programs/two-copies.mjs', import.meta.url)));
    answers = await child.says('answers', 30_000);
    expect(await child.exited).toBe(0);
  }, 40_000);

  it.each(['lock as a class', 'lock as a value', 'lock wired', 'cache as a class', 'cache as a value', 'cache wired'])(
    '%s is refused, and both copies are named by their paths',
    (how) => {
      const { paths } = answers;
      expect(answers[how]).toMatch(/^(Lock|Cache)ConfigError: /);
      expect(answers[how]).toContain(`decorated with the copy of nest-redis-lock in ${paths.other}, but`);
      expect(answers[how]).toContain(`RedisLockModule is imported from the copy in ${paths.here};`);
    },
  );

  it.each(['mocked', 'both modules, as a class', 'both modules, as a value'])('%s works', (how) => {
    expect(answers[how]).toBe('ran');
  });
});
