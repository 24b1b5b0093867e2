import { join } from 'node:path';

/** The folder outside the repository where the tarball is, and where its consumers are installed; see global-setup. */
export function workplace(...path: string[]): string {
  const folder = process.env['PACK_WORKPLACE'];
  if (!folder) throw new Error('PACK_WORKPLACE is not set; run the tests with npm run test:pack');
  return join(folder, ...path);
}

export function tarball(): string {
  return workplace('nest-redis-lock.tgz');
}
