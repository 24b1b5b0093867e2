import { cp, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { tarball, workplace } from './packed.js';
import { run } from './run.js';

const SOURCES = fileURLToPath(new URL('..', import.meta.url));

const NPM_OPTIONS = ['--prefer-offline', '--no-audit', '--no-fund', '--no-package-lock', '--loglevel=error'];

export interface AppBuild {
  type: 'commonjs' | 'module';
  /** The `module` that the compiler emits. */
  module: 'nodenext' | 'commonjs';
  /** The package that has the compiler. */
  compiler: 'typescript' | 'typescript-7';
  /** Where declarations of another package do not fit each other. */
  skipLibCheck?: boolean;
}

interface Manifest {
  name: string;
  version: string;
  peerDependencies: Record<string, string>;
}

/** A project of somebody who installed the package: a folder of `consumers` with its dependencies and the tarball. */
export class Consumer {
  private constructor(readonly folder: string) {}

  static async install(name: string): Promise<Consumer> {
    const consumer = new Consumer(workplace(name));
    await cp(join(SOURCES, 'consumers', name), consumer.folder, { recursive: true });
    await cp(join(SOURCES, 'unit'), join(consumer.folder, 'src'), { recursive: true });
    await cp(join(SOURCES, 'one-class'), join(consumer.folder, 'one-class'), { recursive: true });
    await consumer.add(tarball());
    return consumer;
  }

  async add(...packages: string[]): Promise<void> {
    await run('npm', ['install', ...NPM_OPTIONS, ...packages], { cwd: this.folder });
  }

  /** Installs the oldest versions that the package allows beside this major version of Nest. */
  async addOldest(nest: 10 | 11): Promise<void> {
    const { peerDependencies } = await this.installed('nest-redis-lock');
    const oldest = Object.entries(peerDependencies).map(([name, range]) => {
      const versions = range.match(/[\d.]+/g) ?? [];
      return `${name}@${versions.find((version) => version.startsWith(`${nest}.`)) ?? versions[0]}`;
    });
    await this.add(...oldest, `@nestjs/platform-express@${nest}.0.0`);
  }

  /** Compiles the application, and answers the path of its program. */
  async compile({ type, module, compiler, skipLibCheck = false }: AppBuild): Promise<string> {
    const app = join(this.folder, `app-${type}-${module}-${compiler}`);
    await cp(join(SOURCES, 'app'), app, { recursive: true });
    await writeFile(join(app, 'package.json'), JSON.stringify({ type }));
    const config = ['-p', join(app, `tsconfig.${module}.json`), '--skipLibCheck', String(skipLibCheck)];
    await this.node([join('node_modules', compiler, 'bin', 'tsc'), ...config]);
    return join(app, 'dist', 'main.js');
  }

  /** Compiles the type tests against the declarations of the tarball. */
  async checkTypes(compiler: AppBuild['compiler']): Promise<void> {
    const types = join(this.folder, 'types');
    await cp(join(SOURCES, '..', 'types', 'distributed-lock.types.ts'), join(types, 'distributed-lock.types.ts'));
    const compilerOptions = {
      module: 'NodeNext',
      target: 'ES2022',
      lib: ['ES2023', 'ESNext.Disposable', 'DOM'],
      strict: true,
      experimentalDecorators: true,
      emitDecoratorMetadata: true,
      noEmit: true,
      types: ['node'],
    };
    await writeFile(join(types, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
    await this.node([join('node_modules', compiler, 'bin', 'tsc'), '-p', types]);
  }

  /** Runs a program of the project. */
  node(args: string[], env: object = {}): Promise<string> {
    return run(process.execPath, args, { cwd: this.folder, env });
  }

  /** An installed package, by the name that it has itself: it may be installed under an alias. */
  async installed(folder: string): Promise<Manifest> {
    const manifest = await readFile(join(this.folder, 'node_modules', folder, 'package.json'), 'utf8');
    return JSON.parse(manifest) as Manifest;
  }
}
