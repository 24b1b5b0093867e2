import { startStore } from '../faults/chaos/stores/start-store.js';
import type { Backend } from '../faults/chaos/stores/store.js';
import { Child } from './child.js';
import { eventually } from './eventually.js';

const PROCESSES = 2;
const LEAST_HOLDS = 3_000;
/** 1 where all got the same, 1/n where one got everything. */
const LEAST_JAIN = 0.9;

/** Has processes want one key whose holders await nothing; resolves when each was served about as often. */
export async function processesTakeTurns(backend: Backend): Promise<void> {
  await using store = await startStore(backend);
  const { ports } = store;
  const crew = Array.from({ length: PROCESSES }, () =>
    Child.start('hot-key.mjs', [String(ports[0]), JSON.stringify({ backend, ports })]),
  );
  let asked = 0;
  const served = async () => {
    asked += 1;
    for (const child of crew) child.signal('SIGUSR2');
    return Promise.all(crew.map((child) => child.says<number>(`served:${asked};`)));
  };
  try {
    await Promise.all(crew.map((child) => child.says('ready')));
    const before = await eventually(async () => {
      const counts = await served();
      return counts.every((count) => count > 0) ? counts : undefined;
    });
    await eventually(async () => {
      const counts = (await served()).map((count, index) => count - (before[index] ?? 0));
      return sumOf(counts) > LEAST_HOLDS && jainIndex(counts) >= LEAST_JAIN;
    });
  } finally {
    await Promise.all(crew.map((child) => child.kill()));
  }
}

function jainIndex(counts: readonly number[]): number {
  return sumOf(counts) ** 2 / (counts.length * sumOf(counts.map((count) => count * count)));
}

function sumOf(counts: readonly number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
