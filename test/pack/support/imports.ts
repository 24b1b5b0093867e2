import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import ts from 'typescript';

/** The packages that declarations and all that they reach by relative imports name, sorted. */
export async function packagesReachedFrom(entry: string): Promise<string[]> {
  return packagesFrom(entry, (text) => {
    const { importedFiles, typeReferenceDirectives } = ts.preProcessFile(text, true, true);
    const names = [...importedFiles, ...typeReferenceDirectives].map(({ fileName }) => fileName);
    return names.map((name) => (name.startsWith('.') ? name.replace(/\.js$/, '.d.ts') : name));
  });
}

/** The packages that a file loads when it is loaded, itself or by relative imports, sorted. */
export async function packagesLoadedBy(entry: string): Promise<string[]> {
  return packagesFrom(entry, (text) =>
    loadedAtOnce(ts.createSourceFile('code.js', text, ts.ScriptTarget.ES2022, true)),
  );
}

async function packagesFrom(entry: string, namesIn: (text: string) => readonly string[]): Promise<string[]> {
  const packages = new Set<string>();
  const files = new Set([entry]);
  for (const file of files) {
    for (const name of namesIn(await readFile(file, 'utf8'))) {
      if (name.startsWith('.')) files.add(join(dirname(file), name));
      else packages.add(name);
    }
  }
  return [...packages].toSorted();
}

/** What is imported, or required outside of functions; but the functions around bundled CommonJS modules are called. */
function loadedAtOnce(node: ts.Node): string[] {
  if (ts.isFunctionLike(node) && !isCommonJsModule(node)) return [];
  const inside: string[] = [];
  ts.forEachChild(node, (child) => void inside.push(...loadedAtOnce(child)));
  const name = nameLoadedBy(node);
  return name && ts.isStringLiteral(name) ? [name.text, ...inside] : inside;
}

function nameLoadedBy(node: ts.Node): ts.Expression | undefined {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return node.moduleSpecifier;
  return ts.isCallExpression(node) && node.expression.getText() === 'require' ? node.arguments[0] : undefined;
}

function isCommonJsModule({ parent }: ts.Node): boolean {
  const call = ts.isParenthesizedExpression(parent) ? parent.parent : parent;
  return ts.isCallExpression(call) && call.expression.getText().endsWith('__commonJSMin');
}
