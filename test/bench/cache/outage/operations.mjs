import { setTimeout as sleep } from 'node:timers/promises';
import { microseconds } from '../../clock.mjs';
import { firstLine } from '../../first-line.mjs';
import { WaitRecorder } from '../../waits.mjs';
import { NEW, rowOf, TTL } from '../rows.mjs';

const LOADER_MS = 5;
/** How long (µs) after the end of the outage calls do not yet count as calls after it. */
const RECOVERY = 1_000_000;

let calls;
let calling;
let invalidations;

/**
 * Calls at a steady rate for `ms`, whatever the answers: half of the keys are stored, half are not.
 */
export function startCalling(cache, { perSecond, ms, stored }) {
  calls = [];
  calling = callSteadily(cache, perSecond, ms, stored);
}

async function callSteadily(cache, perSecond, ms, stored) {
  const begin = microseconds();
  const elapsed = () => (microseconds() - begin) / 1_000;
  while (elapsed() < ms) {
    const due = (elapsed() * perSecond) / 1_000;
    while (calls.length < due) calls.push(callOnce(cache, calls.length, stored));
    await sleep(2);
  }
}

function callOnce(cache, number, stored) {
  const call = { began: microseconds(), ended: undefined, error: undefined, warm: number % 2 === 0 };
  const key = call.warm ? `k:${number % stored}` : `cold:${process.pid}:${number}`;
  const loader = async () => {
    await sleep(LOADER_MS);
    return rowOf(number, NEW);
  };
  const end = (error) => {
    call.ended = microseconds();
    call.error = error;
  };
  Promise.resolve(cache.getOrSet(key, loader, { ttl: TTL })).then(
    () => end(),
    (error) => end(firstLine(error)),
  );
  return call;
}

/** Invalidates the keys, and does not wait for it. */
export function startInvalidating(cache, { keys }) {
  invalidations = keys.map((key) => {
    const one = { state: 'pending' };
    Promise.resolve(cache.invalidate(key)).then(
      () => (one.state = 'succeeded'),
      () => (one.state = 'failed'),
    );
    return one;
  });
}

/** What became of the calls that began while Redis was away, from `from` to `to`. What has not ended by now hangs. */
export async function outageReport(_cache, { from, to }) {
  await calling;
  const during = calls.filter(({ began }) => began >= from && began < to);
  const ended = during.filter((call) => call.ended !== undefined);
  const answered = ended.filter((call) => call.ended < to && call.error === undefined);
  const after = calls.filter((call) => call.began >= to + RECOVERY && call.ended !== undefined);
  const share = (part, whole) => (part.length / whole.length) * 100;
  const warm = ({ warm: stored }) => stored;
  return {
    answered: share(answered, during),
    answeredWarm: share(answered.filter(warm), during.filter(warm)),
    errors: ended.filter(({ error }) => error !== undefined).length,
    hangs: during.length - ended.length,
    firstError: ended.find(({ error }) => error !== undefined)?.error,
    invalidations: countStates(),
    waits: waitsOf(ended),
    waitsAfter: waitsOf(after),
  };
}

function waitsOf(ended) {
  const recorder = new WaitRecorder();
  for (const call of ended) recorder.record(call.ended - call.began);
  return recorder.encoded();
}

function countStates() {
  const counts = new Map();
  for (const { state } of invalidations) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, number]) => `${number} ${state}`).join(', ');
}
