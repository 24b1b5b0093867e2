import type { Attributes, Meter } from '@opentelemetry/api';

/** Those that the semantic conventions advise for durations of requests, and shorter ones. */
const BOUNDARIES = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30];

/** A histogram in seconds, as the semantic conventions ask for. Returns the function that records ms. */
export function durations(meter: Meter, name: string, description: string): (ms: number, of: Attributes) => void {
  const advice = { explicitBucketBoundaries: BOUNDARIES };
  const histogram = meter.createHistogram(name, { description, unit: 's', advice });
  return (ms, of) => histogram.record(ms / 1_000, of);
}
