import { build, decodeFromCompressedBase64, encodeIntoCompressedBase64 } from 'hdr-histogram-js';

/** In µs: ten minutes, which is beyond every patience. */
const LONGEST = 600_000_000;

function waitHistogram() {
  return build({ bitBucketSize: 32, highestTrackableValue: LONGEST, numberOfSignificantValueDigits: 3 });
}

/** How long the callers of one process waited, in a form that can be sent to another process. */
export class WaitRecorder {
  #histogram = waitHistogram();

  record(microseconds) {
    this.#histogram.recordValue(Math.min(Math.round(microseconds), LONGEST));
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
