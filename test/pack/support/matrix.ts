import { appendFile } from 'node:fs/promises';
import type { Consumer } from './consumer.js';
import { workplace } from './packed.js';

/** Runs the check, and leaves a row for the table that global-teardown prints. */
export async function inMatrix(
  consumer: Consumer,
  { what, uses }: { what: string; uses: string[] },
  check: () => Promise<void>,
): Promise<void> {
  const [nest, ioredis, ...others] = await Promise.all(
    ['@nestjs/core', 'ioredis', ...uses].map((name) => consumer.installed(name)),
  );
  const tools = others.map(({ name, version }) => `${name} ${version}`).join(', ');
  let result = 'FAILED';
  try {
    await check();
    result = 'passed';
  } finally {
    const row = [process.versions.node, nest?.version, ioredis?.version, what, tools, result];
    await appendFile(workplace('matrix.jsonl'), `${JSON.stringify(row)}\n`);
  }
}
