import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import Table from 'cli-table3';

/** Prints the table of what was installed, and removes it. `PACK_KEEP=1` keeps it. */
export default function tearDown() {
  const workplace = process.env.PACK_WORKPLACE;
  const matrix = join(workplace, 'matrix.jsonl');
  if (existsSync(matrix)) {
    const rows = readFileSync(matrix, 'utf8').trim().split('\n').toSorted();
    const head = ['node', 'nest', 'ioredis', 'consumer', 'with', 'result'];
    const table = new Table({ head, style: { head: [], border: [], compact: true } });
    table.push(...rows.map((row) => JSON.parse(row)));
    // With the report of jest, which is on standard error.
    console.error(`\n${table.toString()}`);
  }
  if (process.env.PACK_KEEP) console.error(`Kept: ${workplace}`);
  else rmSync(workplace, { recursive: true, force: true });
}
