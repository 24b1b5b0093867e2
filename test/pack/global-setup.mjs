import { mkdtempSync, renameSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pack } from '../../tools/pack.mjs';
import setUpRun from '../support/global-setup.mjs';

/** Packs what `npm run build` made, in a folder outside the repository, so that nothing resolves to what is in it. */
export default async function setUp() {
  const kept = tmpdir();
  await setUpRun();
  const workplace = mkdtempSync(join(process.env.PACK_KEEP ? kept : tmpdir(), 'nest-redis-lock-pack-'));
  process.env.PACK_WORKPLACE = workplace;
  renameSync(pack(workplace), join(workplace, 'nest-redis-lock.tgz'));
}
