import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { microseconds } from '../clock.mjs';
import { firstLine } from '../first-line.mjs';
import { connectPeer } from '../peers/catalogue.mjs';
import { peerModules } from '../peers/peer-modules.mjs';
import { StayRecorder } from './exclusion.mjs';
import { KEYS } from './keys.mjs';
import { WaitRecorder } from '../waits.mjs';

const WARM_UP_CYCLES = 300;
const WARM_UP_CALLERS = 50;

/** Connects the peer and warms it up, on keys of its own; answers what runs the callers of this process. */
export async function prepare({ peer, port, directory, ...load }) {
  return prepared(await connectPeer(peer, { port, modules: peerModules(directory) }), load);
}

/** Warms `run` up, on keys of its own; answers what runs the callers of this process. */
export async function prepared(run, load) {
  const warmUp = (number) => run(`warm-up:${process.pid}:${number}`, () => turn());
  for (let cycle = 0; cycle < WARM_UP_CYCLES; cycle++) await warmUp(cycle % 10);
  await Promise.all(Array.from({ length: Math.min(load.callers, WARM_UP_CALLERS) }, (_, caller) => warmUp(caller)));
  return () => measure(run, load);
}

async function measure(run, { callers, keys, holds, ms }) {
  const waits = new WaitRecorder();
  const stays = new StayRecorder();
  const served = Array.from({ length: callers }, () => 0);
  let errors = 0;
  let firstError;
  const began = microseconds();
  const end = began + ms * 1_000;

  const call = async (_, caller) => {
    const hold = holds[caller] ?? 0;
    const nextKey = KEYS[keys](caller);
    while (microseconds() < end) {
      const key = nextKey();
      const asked = microseconds();
      try {
        await run(key, async (token) => {
          const entered = microseconds();
          waits.record(entered - asked);
          await (hold > 0 ? sleep(hold) : turn());
          if (keys !== 'own') stays.record(key, entered, microseconds(), token);
        });
        served[caller] += 1;
      } catch (error) {
        errors += 1;
        firstError ??= firstLine(error);
        await turn();
      }
    }
  };
  await Promise.all(Array.from({ length: callers }, call));
  const elapsed = (microseconds() - began) / 1_000;
  return { elapsed, served, errors, firstError, waits: waits.encoded(), stays: stays.recorded() };
}
