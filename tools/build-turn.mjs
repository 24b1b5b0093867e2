import { closeSync, openSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds within which a process that made the mark has written its number into it. */
const WRITTEN_WITHIN = 2_000;

/** Makes `mark`, which names this process, once no live process has it: of several builds, one runs at a time. */
export async function takeTurn(mark) {
  for (let told = false; ;) {
    try {
      const file = openSync(mark, 'wx');
      writeFileSync(file, String(process.pid));
      closeSync(file);
      return;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    const { abandoned, builder } = stateOf(mark);
    if (abandoned) rmSync(mark, { force: true });
    else if (!told && builder > 0) {
      console.error(`Waiting while process ${builder} builds`);
      told = true;
    }
    await sleep(100);
  }
}

function stateOf(mark) {
  try {
    const builder = Number(readFileSync(mark, 'utf8'));
    // A process that was killed as soon as it had made its mark leaves it empty.
    if (!(builder > 0)) return { abandoned: Date.now() - statSync(mark).mtimeMs > WRITTEN_WITHIN, builder: 0 };
    return { abandoned: !isRunning(builder), builder };
  } catch (error) {
    if (error.code === 'ENOENT') return { abandoned: false, builder: 0 };
    throw error;
  }
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}
