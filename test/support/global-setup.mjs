import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
// From the build, because jest does not transform this file's imports; `npm test` builds first.
import { requireRedisServerProgram } from '../../dist-sample/servers/redis-server.js';
import { temporaryDirectory } from '../../dist-sample/servers/temporary-directory.js';
import { programsFolder } from './programs.mjs';

/**
 * Installs a Redis server, or says how to, before any test needs it. Gives the run one folder for temporary files,
 * which is removed when this process ends, also by a signal, and the folder of the programs that specs start.
 */
export default async function setUp() {
  requireRedisServerProgram();
  const folder = temporaryDirectory();
  // PostgreSQL runs as another user where the tests run as root.
  chmodSync(folder, 0o711);
  process.env.TMPDIR = folder;
  process.env.SERVER_TEMPLATES = join(folder, 'templates');
  mkdirSync(process.env.SERVER_TEMPLATES, { mode: 0o711 });
  process.env.PROGRAMS = await programsFolder();
}
