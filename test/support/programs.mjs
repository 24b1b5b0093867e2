// Node.js programs that specs start, in a folder where the packages that they use are a few scripts, with what V8 made
// of those. A process that loads Nest otherwise spends most of its time in looking for a thousand files.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { builtinModules } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const CACHE = join(ROOT, 'node_modules/.cache');
const OURS = 'nest-redis-lock';
const PROGRAMS = ['dist-sample', 'test/support/programs'];
/** Nest asks whether they are there. No program needs them. */
const LEFT_OUT = /^@nestjs\/(?:axios|microservices|platform-socket\.io|typeorm|websockets)\b/;
/** They look for files beside their own, or are not installed. */
const AS_INSTALLED = ['@fastify/*', 'class-transformer/storage', 'pg-native', 'swagger-ui-dist', 'swagger-ui-dist/*'];
/** How many folders stay: those of other branches. */
const KEPT = 3;

/** The folder with `dist-sample` and `test/support/programs`, made again if anything of it has changed. */
export async function programsFolder() {
  const files = [...PROGRAMS, 'dist'].flatMap(filesIn);
  const hash = createHash('sha1').update(process.version);
  for (const file of ['package-lock.json', 'test/support/programs.mjs', ...files]) {
    hash.update(file).update(readFileSync(join(ROOT, file)));
  }
  const folder = join(CACHE, `programs-${hash.digest('hex').slice(0, 12)}`);
  if (!existsSync(folder)) await make(folder, files);
  const now = new Date();
  utimesSync(folder, now, now);
  return folder;
}

function filesIn(folder) {
  return readdirSync(join(ROOT, folder), { recursive: true })
    .map((file) => join(folder, file))
    .filter((file) => /\.(?:[cm]?js|json)$/.test(file) && statSync(join(ROOT, file)).isFile())
    .toSorted();
}

async function make(folder, files) {
  removeOldest();
  const unfinished = `${folder}-${process.pid}`;
  for (const part of PROGRAMS) cpSync(join(ROOT, part), join(unfinished, part), { recursive: true });
  writeFileSync(join(unfinished, 'package.json'), '{ "type": "module" }');
  const names = namesIn(files);
  await bundle(names, unfinished);
  for (const name of names) await writePackage(name, names, unfinished);
  const program = join(unfinished, PROGRAMS[1], 'compiles.mjs');
  execFileSync(process.execPath, [program], { stdio: ['ignore', 'inherit', 'inherit'] });
  try {
    renameSync(unfinished, folder);
  } catch (error) {
    // Another run has made it meanwhile.
    rmSync(unfinished, { recursive: true });
    if (!existsSync(folder)) throw error;
  }
}

function removeOldest() {
  if (!existsSync(CACHE)) return;
  // Also those that a run has not finished.
  const made = readdirSync(CACHE).filter((name) => /^programs-\w{12}(?:-\d+)?$/.test(name));
  const age = (name) => Date.now() - statSync(join(CACHE, name)).mtimeMs;
  for (const name of made.toSorted((one, other) => age(one) - age(other)).slice(KEPT)) {
    rmSync(join(CACHE, name), { recursive: true, force: true });
  }
}

/** What the programs and the package import by name, of what is installed. */
function namesIn(files) {
  const imports = /\b(?:from|import|require\(|import\()\s*["']((?:@[\w-]+\/)?[a-z][\w./-]*)["']/g;
  const names = files.flatMap((file) =>
    Array.from(readFileSync(join(ROOT, file), 'utf8').matchAll(imports), ([, name]) => name),
  );
  return [...new Set(names)].filter(isInstalled).toSorted((one, other) => one.localeCompare(other));
}

function isInstalled(name) {
  if (builtinModules.includes(name) || LEFT_OUT.test(name)) return false;
  return packageOf(name) === OURS || existsSync(join(ROOT, 'node_modules', packageOf(name)));
}

function packageOf(name) {
  return name
    .split('/')
    .slice(0, name.startsWith('@') ? 2 : 1)
    .join('/');
}

/** What shares state is one script: Nest, and the entries of our package. */
function groupOf(name) {
  return name.startsWith('@nestjs/') ? 'nest' : packageOf(name).replace('/', '+');
}

/** A script for each group, with the names of its packages and what loads them. */
async function bundle(names, folder) {
  const entries = join(folder, 'entries');
  mkdirSync(entries);
  for (const group of new Set(names.map(groupOf))) {
    const own = names.filter((name) => groupOf(name) === group).map((name) => JSON.stringify(name));
    const code = (how) => own.map((name) => `${name}: () => ${how}(${name})`).join(',\n');
    writeFileSync(
      join(entries, `${group}.mjs`),
      `export const imported = {\n${code('import')}\n};\nexport const required = {\n${code('require')}\n};\n`,
    );
  }
  await build({
    absWorkingDir: ROOT,
    entryPoints: readdirSync(entries).map((file) => join(entries, file)),
    outdir: join(folder, 'scripts'),
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node20',
    supported: { 'dynamic-import': false },
    define: { 'import.meta.url': '__url' },
    keepNames: true,
    legalComments: 'none',
    // Without the paths to lib.
    tsconfigRaw: {},
    external: AS_INSTALLED,
    logLevel: 'error',
    plugins: [fromOtherScripts(names), boundRequire()],
  });
  rmSync(entries, { recursive: true });
  writeFileSync(join(folder, 'scripts/package.json'), '{ "type": "commonjs" }');
  writeFileSync(join(folder, 'load.mjs'), loader(names));
}

function fromOtherScripts(names) {
  const entryOf = (name) => join(ROOT, 'dist/cjs', `${name.slice(OURS.length + 1) || 'index'}.js`);
  const groupOfFile = (file) => {
    const entry = /\/entries\/([^/]+)\.mjs$/.exec(file)?.[1];
    if (entry !== undefined) return entry;
    const inside = file.split('/node_modules/').at(-1);
    return file.startsWith(join(ROOT, 'dist/')) ? OURS : groupOf(inside);
  };
  return {
    name: 'from-other-scripts',
    setup({ onResolve, onLoad }) {
      onResolve({ filter: LEFT_OUT }, ({ path }) => ({ path, namespace: 'left-out' }));
      onLoad({ filter: /./, namespace: 'left-out' }, ({ path }) => ({ contents: `throw new Error('No ${path}')` }));
      onResolve({ filter: /^@?[a-z]/ }, ({ path, importer }) => {
        if (!names.includes(path) || importer === '') return undefined;
        if (groupOf(path) !== groupOfFile(importer)) return { path, external: true };
        return packageOf(path) === OURS ? { path: entryOf(path) } : undefined;
      });
    },
  };
}

/** Nest requires some packages by `createRequire`, past the bundler. */
function boundRequire() {
  return {
    name: 'bound-require',
    setup: ({ onLoad }) =>
      onLoad({ filter: /\/node_modules\/@nestjs\/.*\.js$/ }, ({ path }) => {
        const code = readFileSync(path, 'utf8');
        return { contents: code.replace(/^const require = createRequire\(import\.meta\.url\);$/m, '') };
      }),
  };
}

function loader(names) {
  return `import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Script } from 'node:vm';

const GROUPS = ${JSON.stringify(Object.fromEntries(names.map((name) => [name, groupOf(name)])))};
const scripts = new Map();

export function imported(name) {
  return group(GROUPS[name]).imported[name]();
}

/** Keeps what V8 has made of the scripts by now. */
export async function keepCompiled() {
  for (const name in GROUPS) if (!scripts.has(GROUPS[name])) await imported(name);
  for (const { script, file } of scripts.values()) writeFileSync(file + '.compiled', script.createCachedData());
}

function group(name) {
  const loaded = scripts.get(name);
  if (loaded) return loaded.module.exports;
  const file = fileURLToPath(new URL('scripts/' + name + '.js', import.meta.url));
  const source = '(function (exports, require, module, __filename, __dirname, __url) {' + readFileSync(file, 'latin1') + '\\n})';
  const script = new Script(source, { filename: 'programs/' + name + '.js', cachedData: compiled(file) });
  const module = { exports: {} };
  scripts.set(name, { script, file, module });
  const own = createRequire(file);
  const required = (id) => (id in GROUPS ? group(GROUPS[id]).required[id]() : own(id));
  script.runInThisContext()(module.exports, Object.assign(required, own), module, file, '', pathToFileURL(file).href);
  return module.exports;
}

function compiled(file) {
  try {
    return readFileSync(file + '.compiled');
  } catch {
    return undefined;
  }
}
`;
}

/** What programs import, with the names that Node.js sees. */
async function writePackage(name, names, folder) {
  const whole = packageOf(name);
  const file = join(folder, 'node_modules', name, 'imported.mjs');
  mkdirSync(join(file, '..'), { recursive: true });
  // From Node.js 23 on, "module.exports" is a name, too.
  const exported = Object.keys(await import(name)).filter((each) => each !== 'default' && each !== 'module.exports');
  writeFileSync(
    file,
    `import { imported } from '${'../'.repeat(name.split('/').length + 1)}load.mjs';
const all = await imported('${name}');
export const { ${exported.join(', ')} } = all;
export default all.default;
`,
  );
  const subpaths = names.filter((each) => packageOf(each) === whole);
  const exports = subpaths.map((each) => [`.${each.slice(whole.length)}`, `.${each.slice(whole.length)}/imported.mjs`]);
  const { version } = JSON.parse(
    readFileSync(
      whole === OURS ? join(ROOT, 'package.json') : join(ROOT, 'node_modules', whole, 'package.json'),
      'utf8',
    ),
  );
  const manifest = {
    name: whole,
    version,
    exports: { ...Object.fromEntries(exports), './package.json': './package.json' },
  };
  writeFileSync(join(folder, 'node_modules', whole, 'package.json'), JSON.stringify(manifest));
}
