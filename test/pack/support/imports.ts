import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import ts from 'typescript';

/**
 * The packages that a file and all that it reaches by relative imports name, sorted; of JavaScript or of declarations.
 */
export async function packagesReachedFrom(entry: string): Promise<string[]> {
  const packages = new Set<string>();
  const files = new Set([entry]);
  for (const file of files) {
    const { importedFiles, typeReferenceDirectives } = ts.preProcessFile(await readFile(file, 'utf8'), true, true);
    for (const { fileName } of [...importedFiles, ...typeReferenceDirectives]) {
      if (!fileName.startsWith('.')) packages.add(fileName);
      else files.add(join(dirname(file), file.endsWith('.d.ts') ? fileName.replace(/\.js$/, '.d.ts') : fileName));
    }
  }
  return [...packages].toSorted();
}
