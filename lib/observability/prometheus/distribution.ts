import type { Sample } from './exported-metric.js';

/** How often durations fell into each bucket. */
export class Distribution {
  private readonly counts: number[];
  private count = 0;
  private sum = 0;

  /** The upper bounds of the buckets, in seconds and rising. */
  constructor(private readonly bounds: readonly number[]) {
    this.counts = bounds.map(() => 0);
  }

  /** Adds a duration in ms. */
  observe(ms: number): void {
    const seconds = ms / 1_000;
    this.count += 1;
    this.sum += seconds;
    const { bounds, counts } = this;
    for (let index = 0; index < bounds.length; index++) {
      if (seconds > (bounds[index] as number)) continue;
      counts[index] = (counts[index] as number) + 1;
      return;
    }
  }

  samples(name: string, labels: Sample['labels']): Sample[] {
    let below = 0;
    const buckets = this.bounds.map((le, index) => {
      below += this.counts[index] as number;
      return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: below };
    });
    return [
      ...buckets,
      { metricName: `${name}_bucket`, labels: { le: '+Inf', ...labels }, value: this.count },
      { metricName: `${name}_sum`, labels, value: this.sum },
      { metricName: `${name}_count`, labels, value: this.count },
    ];
  }
}
