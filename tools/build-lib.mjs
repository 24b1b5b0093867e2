// Builds the package, into dist: compiles lib, bundles the result, and writes the entry points.
//
//   dist-lib/               what tsc makes of lib, with source maps; input of the rest
//   dist/cjs/<entry>.js     the package, with what entry points share in dist/cjs/chunks
//   dist/<entry>.js         passes on the same, so that a process that imports and requires has one copy of the package
//   dist/cjs/<entry>.d.ts   the declarations, which dist/<entry>.d.ts passes on
//
// Source maps lead from dist/cjs to lib. They stay out of the tarball.
import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { rollup } from 'rollup';
import { dts } from 'rollup-plugin-dts';
import { ENTRIES } from './entries.mjs';
import { nestGivenByImporters, writeEntryPoints } from './import-entries.mjs';
import { noticesOf } from './notices.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const COMPILED = `${ROOT}dist-lib`;
const OUT = `${ROOT}dist`;
const COMMAND_LINE = { cli: 'cli/main' };

/** Small packages that become part of this one. All others are dependencies or peers of it. */
const BUNDLED = ['cluster-key-slot', 'etag', 'fresh', 'lru-cache', 'ms', 'msgpackr'];

for (const folder of [COMPILED, OUT]) rmSync(folder, { recursive: true, force: true });
execFileSync(process.execPath, [compiler(), '-p', 'tsconfig.build.json'], { cwd: ROOT, stdio: 'inherit' });
const chunks = await bundleCode();
writeEntryPoints(chunks, await bundleDeclarations());
writeFileSync(`${OUT}/THIRD-PARTY-NOTICES.txt`, noticesOf(chunks.flatMap(({ moduleIds }) => moduleIds)));
// The build is complete where this file is; see build.mjs.
writeFileSync(`${OUT}/cjs/package.json`, '{ "type": "commonjs" }\n');

/** All entry points in one call, so that they share their classes. */
async function bundleCode() {
  const bundle = await rolldown({
    cwd: ROOT,
    input: inputs({ ...ENTRIES, ...COMMAND_LINE }, 'js'),
    external: isExternal,
    platform: 'node',
    // ioredis.ts has another branch for those who load lib itself.
    transform: { define: { 'typeof require': '"function"' } },
    treeshake: { moduleSideEffects: false },
    plugins: [msgpackrWithoutAddon(), sourceMapsOfTheCompiler(), plainExports(), nestGivenByImporters()],
    onLog: failOnWarning,
  });
  const { output } = await bundle.write({
    dir: `${OUT}/cjs`,
    format: 'cjs',
    exports: 'named',
    esModule: false,
    strict: true,
    entryFileNames: '[name].js',
    chunkFileNames: 'chunks/[name].js',
    codeSplitting: { groups: [{ name: 'lru-cache', test: /\/node_modules\/lru-cache\// }] },
    comments: { legal: true, annotation: true, jsdoc: false },
    sourcemap: true,
    sourcemapExcludeSources: true,
  });
  const built = output.filter(({ type }) => type === 'chunk');
  const renamed = built.flatMap(({ fileName, code }) =>
    Array.from(code.matchAll(/\bclass \w+\$\d+|\w+\$\d+ = class\b/g), ([text]) => `${fileName}: ${text}`),
  );
  // Users read the names of classes, in messages of Nest and as names of errors.
  if (renamed.length > 0) throw new Error(`Two classes have one name:\n${renamed.join('\n')}`);
  return built;
}

async function bundleDeclarations() {
  const bundle = await rollup({
    input: inputs(ENTRIES, 'd.ts'),
    external: isExternal,
    plugins: [dts(), ioredisMayBeMissing()],
    onLog: ignorePrivateTypes,
  });
  const { output } = await bundle.write({
    dir: `${OUT}/cjs`,
    format: 'es',
    entryFileNames: '[name].d.ts',
    chunkFileNames: ({ name }) => `chunks/${name.replace(/\.d$/, '')}.d.ts`,
    minifyInternalExports: false,
    hoistTransitiveImports: false,
  });
  return output;
}

function inputs(entries, extension) {
  return Object.fromEntries(Object.entries(entries).map(([name, path]) => [name, `${COMPILED}/${path}.${extension}`]));
}

function isExternal(id) {
  return !/^[./]|^[A-Z]:/.test(id) && !BUNDLED.includes(id.split('/')[0]);
}

/** The build of msgpackr for browsers is the one that looks for no native addon. */
function msgpackrWithoutAddon() {
  return {
    name: 'msgpackr-without-addon',
    resolveId: (id) => (id === 'msgpackr/pack' ? `${ROOT}node_modules/msgpackr/pack.js` : undefined),
  };
}

function sourceMapsOfTheCompiler() {
  return {
    name: 'source-maps-of-the-compiler',
    load(id) {
      if (!id.startsWith(COMPILED)) return undefined;
      const code = readFileSync(id, 'utf8').replace(/\/\/# sourceMappingURL=.*\s*$/, '');
      return { code, map: JSON.parse(readFileSync(`${id}.map`, 'utf8')) };
    },
  };
}

/**
 * Makes properties of the exports where rolldown defines getters, which would run at each use from another chunk. No
 * export of lib changes once its module has run.
 */
function plainExports() {
  const getter =
    /Object\.defineProperty\(exports, "(\w+)", \{\s+enumerable: true,\s+get: function \(\) \{\s+return ([\w.]+);\s+\}\s+\}\);/g;
  return {
    name: 'plain-exports',
    renderChunk: (code) => ({ code: code.replaceAll(getter, 'exports.$1 = $2;'), map: null }),
  };
}

/** Compiles without ioredis, too, where `skipLibCheck` is off: its types are then `any`. */
function ioredisMayBeMissing() {
  return {
    name: 'ioredis-may-be-missing',
    renderChunk: (code) => ({ code: code.replace(/^import .* from 'ioredis';$/m, '// @ts-ignore\n$&'), map: null }),
  };
}

/** A class has private members whose types are no part of the public ones. */
function ignorePrivateTypes(level, log, handle) {
  if (!/still references private shared type exports/.test(log.message)) handle(level, log);
}

function failOnWarning(level, log) {
  if (level === 'warn') throw new Error(`${log.code}: ${log.message}`);
}

/** TypeScript 7; the package `typescript` is an older one, see CONTRIBUTING.md. */
function compiler() {
  return `${ROOT}node_modules/.bin/tsc`;
}
