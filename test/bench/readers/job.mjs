import { setTimeout as sleep } from 'node:timers/promises';
import { microseconds } from '../clock.mjs';
import { WaitRecorder } from '../waits.mjs';
import { connectLocks } from '../worker/lock-service.mjs';

const WARM_UP_CYCLES = 300;
const OPTIONS = { wait: '60s' };
const READ = { ...OPTIONS, mode: 'read' };

/** Callers of one key: `readers` of them take it to read, `writers` to write, each for `hold` ms. */
export async function prepare({ port, readers, writers, hold, ms }) {
  const locks = await connectLocks(port);
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) {
    const options = cycle % 2 === 0 ? READ : OPTIONS;
    await locks.withLock(`warm-up:${process.pid}`, options, async () => {});
  }
  return async () => {
    const stays = [];
    const waits = { read: new WaitRecorder(), write: new WaitRecorder() };
    const began = microseconds();
    const end = began + ms * 1_000;
    const call = async (mode) => {
      while (microseconds() < end) {
        const asked = microseconds();
        await locks.withLock('hot', mode === 'read' ? READ : OPTIONS, async () => {
          const entered = microseconds();
          waits[mode].record(entered - asked);
          await sleep(hold);
          stays.push({ writes: mode === 'write', entered, left: microseconds() });
        });
      }
    };
    const callers = [...Array(readers).fill('read'), ...Array(writers).fill('write')];
    await Promise.all(callers.map(call));
    const elapsed = (microseconds() - began) / 1_000;
    return { elapsed, stays, waits: { read: waits.read.encoded(), write: waits.write.encoded() } };
  };
}
