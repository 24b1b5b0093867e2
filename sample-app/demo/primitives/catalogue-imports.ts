import { setTimeout as sleep } from 'node:timers/promises';
import type { Environment } from '../environment.js';
import { mustCall, type Shop } from '../shop.js';
import { failuresAmong, type PrimitiveResult } from '../verdict.js';

/** Several pages of the shop. */
const PRODUCTS = 60;
const IMPORTS = 15;
const READERS = 12;
/** Milliseconds between two imports. */
const PAUSE = 30;

export interface CatalogueImports {
  readonly imports: number;
  readonly reads: number;
  /** Reads during which an import was under way. */
  readonly besideImports: number;
  /** Reads that showed rows of several imports. */
  readonly mixed: number;
  /** The versions of the rows in the database at the end. */
  readonly versions: readonly number[];
}

/** Imports the catalogue again and again in all processes, while readers read it. */
export async function importBesideReads({ shops, database }: Environment): Promise<CatalogueImports> {
  const shopFor = (turn: number) => shops[turn % shops.length] as Shop;
  const prices = Array.from({ length: PRODUCTS }, (_, index) => ({ sku: `catalogue-${index}`, price: index }));
  const importAs = (version: number) => mustCall(shopFor(version), 'POST', '/catalogue', { version, prices });
  await importAs(1);

  const counted = { reads: 0, besideImports: 0, mixed: 0 };
  let importing = false;
  const stopping = new AbortController();
  const read = async (reader: number): Promise<void> => {
    for (let turn = reader; !stopping.signal.aborted; turn++) {
      const importingBefore = importing;
      const entries = JSON.parse(await mustCall(shopFor(turn), 'GET', '/catalogue')) as { version: number }[];
      counted.reads += 1;
      if (importingBefore || importing) counted.besideImports += 1;
      if (entries.length < PRODUCTS || new Set(entries.map(({ version }) => version)).size > 1) counted.mixed += 1;
    }
  };
  const reading = Promise.all(Array.from({ length: READERS }, (_, reader) => read(reader)));
  // Awaited below.
  reading.catch(() => {});
  try {
    for (let version = 2; version <= IMPORTS; version++) {
      importing = true;
      await importAs(version);
      importing = false;
      await sleep(PAUSE);
    }
  } finally {
    stopping.abort();
  }
  await reading;
  const { rows } = await database.query<{ version: number }>('SELECT DISTINCT version FROM catalogue');
  return { imports: IMPORTS, ...counted, versions: rows.map(({ version }) => version) };
}

export function importsResult({ imports, reads, besideImports, mixed, versions }: CatalogueImports): PrimitiveResult {
  return {
    primitive: 'read-write-lock',
    tried: `${imports} imports of a catalogue of ${PRODUCTS} rows, beside ${READERS} readers`,
    happened: `${reads} reads, ${besideImports} of them during an import`,
    evidence: `${mixed} reads with rows of several imports; version ${versions.join(', ')} at the end`,
    failures: failuresAmong(
      [mixed === 0, `${mixed} of ${reads} reads showed half of an import`],
      [besideImports > 0, 'no read came during an import'],
      [versions.length === 1 && versions[0] === imports, `versions ${versions.join(', ')} after ${imports} imports`],
    ),
  };
}
