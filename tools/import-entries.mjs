// The entry points for `import`. They pass on those for `require`, so that there is one copy of the package. Nest 12 is
// made of ES modules, which some loaders cannot require: jest before Node.js 24.9. So these entry points import Nest,
// give it to the code for `require`, and only then load that.
import { mkdirSync, writeFileSync } from 'node:fs';
import { posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ENTRIES } from './entries.mjs';

const OUT = fileURLToPath(new URL('../dist', import.meta.url));

/** Where `require` finds the modules of Nest that were given. */
const GIVEN = 'nest.js';

/** A plugin: the code takes the modules of Nest that were given, and requires others. */
export function nestGivenByImporters() {
  const required = /^let (\w+) = require\("(@nestjs\/[^"]+)"\);$(\n\1 = .*__toESM\(\1, 1\);$)?/gm;
  return {
    name: 'nest-given-by-importers',
    renderChunk: (code, { fileName }) => ({
      // As many lines as before, to which the source map points.
      code: code.replaceAll(required, (_line, variable, module, interop = '') => {
        const given = `require("${fileName.includes('/') ? '..' : '.'}/${GIVEN}")`;
        return `let ${variable} = ${given}["${module}"] ?? require("${module}");${interop && '\n'}`;
      }),
      map: null,
    }),
  };
}

export function writeEntryPoints(chunks, declarations) {
  writeFileSync(
    `${OUT}/cjs/${GIVEN}`,
    '"use strict";\n// Modules of Nest by name, from those who import this package.\nmodule.exports = {};\n',
  );
  mkdirSync(`${OUT}/cjs/given-nest`);
  for (const name of Object.keys(ENTRIES)) {
    const entry = chunks.find((chunk) => chunk.fileName === `${name}.js`);
    writeFileSync(`${OUT}/${name}.js`, entryPoint(name, entry.exports, nestReachedFrom(entry, chunks)));
    writeFileSync(`${OUT}/${name}.d.ts`, typesOf(name, declarations));
  }
}

function entryPoint(name, exports, nest) {
  // An entry point of types alone.
  if (exports.length === 0) return 'export {};\n';
  const names = `export const {\n  ${exports.toSorted().join(',\n  ')},\n}`;
  if (nest.length === 0) return `import all from './cjs/${name}.js';\n\n${names} = all;\n`;
  writeFileSync(`${OUT}/cjs/given-nest/${name}.js`, loader(name));
  const imports = nest.map((module, index) => `import * as nest${index} from '${module}';\n`);
  const given = nest.map((module, index) => `  '${module}': nest${index},\n`);
  return `${imports.join('')}import load from './cjs/given-nest/${name}.js';\n\n${names} = load({\n${given.join('')}});\n`;
}

/**
 * The declarations of an entry point. With those of the others whose types it has: declarations that TypeScript writes
 * for an application name a type by the entry point that exports it, if the application has that among its files.
 */
function typesOf(name, declarations) {
  const importsOf = (file) => {
    const { code = '' } = declarations.find(({ fileName }) => fileName === file) ?? {};
    const relative = Array.from(code.matchAll(/ from '(\.[^']*)\.js';$/gm), ([, path]) => `${path}.d.ts`);
    return relative.map((path) => posix.join(posix.dirname(file), path));
  };
  const reached = reachedFrom(`${name}.d.ts`, importsOf);
  const others = Object.keys(ENTRIES).filter((other) => other !== name && reached.includes(`${other}.d.ts`));
  const references = others.map((other) => `/// <reference path="./${other}.d.ts" />\n`);
  return `${references.join('')}export * from './cjs/${name}.js';\n`;
}

/** Loads the entry point when it is called, and not before. */
function loader(name) {
  return `"use strict";\nconst nest = require("../${GIVEN}");\nmodule.exports = (given) => {\n\tObject.assign(nest, given);\n\treturn require("../${name}.js");\n};\n`;
}

function nestReachedFrom(entry, chunks) {
  const importsOf = (file) => {
    const { imports = [], dynamicImports = [] } = chunks.find(({ fileName }) => fileName === file) ?? {};
    return [...imports, ...dynamicImports];
  };
  const reached = reachedFrom(entry.fileName, importsOf);
  return reached.filter((name) => name.startsWith('@nestjs/')).toSorted();
}

/** The file, and all files and packages that it imports, itself or by others. */
function reachedFrom(file, importsOf) {
  /** @type {Set<string>} */
  const reached = new Set([file]);
  for (const each of reached) for (const next of importsOf(each)) reached.add(next);
  return [...reached];
}
