// Compiles msgpackr into the one file of `dist` that uses it, as an ES module and as CommonJS, with its licence.
import { readFile } from 'node:fs/promises';
import { build } from 'esbuild';

const licence = await readFile(new URL('../node_modules/msgpackr/LICENSE', import.meta.url), 'utf8');

const options = {
  entryPoints: ['dist/cache/values/packer.js'],
  bundle: true,
  // The build of msgpackr for browsers is the one that looks for no native addon.
  platform: 'browser',
  target: 'node20',
  minifyWhitespace: true,
  minifySyntax: true,
  banner: { js: `/*!\nContains msgpackr.\n\n${licence.trim()}\n*/` },
  logLevel: 'warning',
};

await build({ ...options, format: 'cjs', outfile: 'dist/cjs/cache/values/packer.js' });
await build({ ...options, format: 'esm', outfile: 'dist/cache/values/packer.js', allowOverwrite: true });
