// What the programs of this folder share: each uses a primitive with several callers, and gives evidence of that on
// another Redis server (see test/faults/primitives-chaos). SIGTERM ends the callers and the application.
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { uniformInt } from 'pure-rand/distribution/uniformInt';
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus';
import { say, startLockApp } from '../lock-app.mjs';

/** How often (ms) a long hold is shown. */
const BETWEEN_LOOKS = 20;

export const { id, names, seed, evidence } = JSON.parse(process.argv[3]);
export const witness = new Redis({ host: '127.0.0.1', port: evidence.port, retryStrategy: null });
// The parent process is gone.
const orphaned = () => process.exit(3);
witness.on('error', () => {}).on('close', orphaned);
export const { app } = await startLockApp({ cache: false }, { shutdownHooks: false });

const random = xoroshiro128plus(seed);
export const whole = (least, most) => uniformInt(random, least, most);
export const oneOf = (values) => values[whole(0, values.length - 1)];
export const oneIn = (number) => whole(1, number) === 1;
/** In µs, of a clock that all processes of the machine share. */
export const now = () => Number(process.hrtime.bigint() / 1_000n);

/** Runs a script of the evidence. */
export async function give(script, keys, ...args) {
  const all = ['tally', 'findings', 'cycles', ...keys];
  return witness.evalsha(evidence.scripts[script], all.length, ...all, ...args);
}

export const note = (what) => give('note', [], `${id}: ${what}`);
export const count = (what) => witness.hincrby('tally', what, 1);

/** One hold with a fencing token; `trusted` tells whether its process takes it for its own, and reads the clock. */
export class FencedHold {
  constructor(key, token, trusted) {
    this.key = key;
    this.token = token;
    this.trusted = trusted;
  }

  holder = `${id}-${now()}-${whole(0, 1_000_000)}`;

  /** Answers whether the evidence took the step. Only a hold that is lost may come too late. */
  async step(script, ...args) {
    if ((await give(script, [this.key], this.token, this.holder, ...args)) === 1) return true;
    if (this.trusted()) await note(`${this.key}, token ${this.token}: overtaken while it was held`);
    await count('overtaken');
    return false;
  }

  /** Shows the hold for `ms`, as long as the evidence takes that. */
  async last(ms) {
    const until = performance.now() + ms;
    for (let left = ms; left > 0; left = until - performance.now()) {
      await sleep(Math.min(left, BETWEEN_LOOKS));
      if (!(await this.step('look'))) return false;
    }
    return true;
  }
}

const stopping = new AbortController();
/** Aborts when the callers are to end. */
export const stop = stopping.signal;

/** Repeats each of `calls` until SIGTERM. */
export async function takePart(calls) {
  const told = once(process, 'SIGTERM');
  say('ready');
  const repeat = async (call) => {
    while (!stop.aborted) await call();
  };
  const ended = Promise.all(calls.map(repeat));
  await told;
  stopping.abort();
  await ended;
  await app.close();
  witness.off('close', orphaned).disconnect();
  say('closed');
}
