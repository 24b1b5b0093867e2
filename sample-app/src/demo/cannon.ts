import autocannon from 'autocannon';
import type { Histogram } from 'hdr-histogram-js';

/** How often autocannon checks whether it is done, in milliseconds. Its default is a second. */
const SAMPLE_INTERVAL = 100;

/** Sends the requests of the options until they are done. `latency` gets the microseconds of each answer. */
export async function fire(options: autocannon.Options, latency: Histogram): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const instance = autocannon({ ...options, sampleInt: SAMPLE_INTERVAL }, (error: Error | null) =>
      error ? reject(error) : resolve(),
    );
    instance.on('response', (_client, _status, _bytes, milliseconds) => latency.recordValue(milliseconds * 1_000));
  });
}

/** Splits `total` into `parts` whole shares that differ by one at most. */
export function inShares(total: number, parts: number): number[] {
  return Array.from({ length: parts }, (_, index) => Math.floor((total + index) / parts));
}
