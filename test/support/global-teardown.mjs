import { readdirSync } from 'node:fs';

const BACKENDS = new URL('../backends/', import.meta.url);

/** Says which backends `npm test` has left out, because their servers are large. */
export default function tearDown() {
  const folders = readdirSync(BACKENDS, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  if (folders.length === 0) return;
  // With the report of jest, which is on standard error.
  console.error(`\nnot run here: ${folders.map(({ name }) => name).join(', ')} (npm run test:backends)`);
}
