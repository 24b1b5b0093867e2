// Jest loads the modules of each spec file anew, and Nest with rxjs is more than a thousand. This makes a few files of
// them, once for each installation.
import { existsSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const PACKAGES = ['common', 'core', 'testing', 'platform-express', 'platform-fastify', 'platform-ws', 'websockets'];
const MORE = [
  'microservices',
  'graphql',
  'apollo',
  'bullmq',
  'schedule',
  'swagger',
  'terminus',
  'event-emitter',
  'cqrs',
];
/** Files of Nest that the library or a spec imports by their paths: without an entry they would be there twice. */
const FILES = ['common/constants', 'core/application-config', 'core/injector/modules-container'];

/** The entries of `moduleNameMapper` for Nest and rxjs. */
export async function bundledNest() {
  const lock = readFileSync(`${ROOT}package-lock.json`);
  const version = createHash('sha1')
    .update(lock)
    .update(readFileSync(new URL(import.meta.url)))
    .digest('hex');
  const folder = `${ROOT}node_modules/.cache/nest-${version.slice(0, 12)}`;
  if (!existsSync(folder)) await bundle(folder);
  return {
    '^rxjs$': `${folder}/rxjs.mjs`,
    [`^@nestjs/(${[...PACKAGES, ...MORE].join('|')})$`]: `${folder}/@nestjs/$1.mjs`,
    [`^@nestjs/(${FILES.join('|')})\\.js$`]: `${folder}/@nestjs/$1.mjs`,
  };
}

async function bundle(folder) {
  const names = [...PACKAGES, ...MORE].map((name) => `@nestjs/${name}`);
  const files = FILES.map((file) => [`@nestjs/${file}`, `@nestjs/${file}.js`]);
  const unfinished = `${folder}-${process.pid}`;
  await build({
    absWorkingDir: ROOT,
    entryPoints: Object.fromEntries([...files, ...[...names, 'rxjs'].map((name) => [name, name])]),
    outdir: unfinished,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'neutral',
    conditions: ['es2015', 'import'],
    mainFields: ['module', 'main'],
    target: 'node20',
    keepNames: true,
    logLevel: 'error',
    plugins: [{ name: 'nest-alone', setup: ({ onResolve }) => onResolve({ filter: /^[^./]/ }, isOutside) }],
  });
  try {
    renameSync(unfinished, folder);
  } catch (error) {
    // Another run has made it meanwhile.
    rmSync(unfinished, { recursive: true });
    if (!existsSync(folder)) throw error;
  }
}

function isOutside({ path, kind }) {
  if (kind === 'entry-point') return undefined;
  const inside = path === 'rxjs' || path.startsWith('rxjs/') || path.startsWith('@nestjs/');
  // An optional package of Nest that is not installed.
  return inside && path !== '@nestjs/platform-socket.io' ? undefined : { path, external: true };
}
