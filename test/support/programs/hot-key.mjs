// Five callers take one key again and again and await nothing inside of it. SIGUSR2: says how often they were served.
// Its arguments: the first port of the store; `{ backend, ports }`.
import { optionsFor } from './contending-stores.mjs';
import { say, startLockApp } from './lock-app.mjs';

const { backend, ports } = JSON.parse(process.argv[3]);
const { locks } = await startLockApp(await optionsFor(backend, ports), { shutdownHooks: false });
let served = 0;
let asked = 0;
process.on('SIGUSR2', () => say(`served:${++asked};`, served));
// Keeps the process alive while it waits, until its parent is gone.
const parent = process.ppid;
setInterval(() => process.ppid !== parent && process.exit(3), 1_000);
say('ready');

async function call() {
  for (;;) {
    await locks.withLock('hot', { wait: 60_000 }, async () => {
      served += 1;
    });
  }
}

await Promise.all(Array.from({ length: 5 }, call));
