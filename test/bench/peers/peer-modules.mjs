import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** Loads packages out of the folder where the peers are installed. */
export function peerModules(directory) {
  const require = createRequire(join(directory, 'package.json'));
  return { require, import: (name) => import(pathToFileURL(require.resolve(name)).href) };
}
