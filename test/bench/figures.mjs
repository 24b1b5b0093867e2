import { setTimeout as sleep } from 'node:timers/promises';
import { build, decodeFromCompressedBase64, encodeIntoCompressedBase64 } from 'hdr-histogram-js';

/** On the machine's monotonic clock, which all processes read alike. */
export function microseconds() {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e6 + nanoseconds / 1e3;
}

export function median(numbers) {
  const sorted = numbers.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** In µs: ten minutes, which is beyond every patience. */
const LONGEST = 600_000_000;

function waitHistogram() {
  return build({ bitBucketSize: 32, highestTrackableValue: LONGEST, numberOfSignificantValueDigits: 3 });
}

/** How long the callers of one process waited, in a form that can be sent to another process. */
export class WaitRecorder {
  #histogram = waitHistogram();

  record(time) {
    this.#histogram.recordValue(Math.min(Math.round(time), LONGEST));
  }

  encoded() {
    return encodeIntoCompressedBase64(this.#histogram);
  }
}

/** Percentiles, in ms, over the waits in all processes. */
export function waitPercentiles(encodings) {
  const all = waitHistogram();
  for (const encoded of encodings) all.add(decodeFromCompressedBase64(encoded, 32));
  const percentile = (share) => all.getValueAtPercentile(share) / 1_000;
  return { p50: percentile(50), p99: percentile(99), max: all.maxValue / 1_000 };
}

/** Jain's index: 1 when all were served equally often, 1 / n when one of n was served alone. */
export function jainIndex(served) {
  const sum = served.reduce((total, count) => total + count, 0);
  const squares = served.reduce((total, count) => total + count * count, 0);
  return squares === 0 ? 0 : (sum * sum) / (served.length * squares);
}

/**
 * When bodies ran in one process, under which key and with which fencing token, if any. The clock is the machine's, so
 * that processes can be compared.
 */
export class StayRecorder {
  #keys = [];
  #entered = [];
  #left = [];
  #tokens = [];

  record(key, entered, left, token) {
    this.#keys.push(key);
    this.#entered.push(entered);
    this.#left.push(left);
    this.#tokens.push(typeof token === 'number' ? token : Infinity);
  }

  recorded() {
    const [entered, left, tokens] = [this.#entered, this.#left, this.#tokens].map((each) => Float64Array.from(each));
    return { keys: this.#keys, entered, left, tokens };
  }
}

/**
 * How many bodies began, in whatever process, while another one ran under the same key, or with a fencing token that is
 * not above the one before.
 */
export function countViolations(recordings) {
  const staysOf = new Map();
  for (const { keys, entered, left, tokens } of recordings) {
    for (const [index, key] of keys.entries()) {
      if (!staysOf.has(key)) staysOf.set(key, []);
      staysOf.get(key).push({ entered: entered[index], left: left[index], token: tokens[index] });
    }
  }
  let violations = 0;
  for (const stays of staysOf.values()) {
    stays.sort((one, other) => one.entered - other.entered);
    const left = Float64Array.from(stays, (stay) => stay.left).toSorted();
    for (let index = 1; index < stays.length; index++) {
      const [before, stay] = [stays[index - 1], stays[index]];
      // The one that enters as number n + 1 was alone if n had left before.
      if (left[index - 1] > stay.entered) violations += 1;
      else if (stay.token < Infinity && stay.token <= before.token) violations += 1;
    }
  }
  return violations;
}

/** Bytes that this process has in use once garbage is collected, which takes `--expose-gc`. */
export async function settledMemory() {
  for (let pass = 0; pass < 3; pass++) {
    await sleep(50);
    globalThis.gc();
  }
  const { heapUsed, external, rss } = process.memoryUsage();
  return { heap: heapUsed + external, rss };
}

/** What went wrong, on one line: what follows are stacks and paths of this machine. */
export function firstLine(error) {
  return String(error?.message ?? error).split('\n', 1)[0];
}
