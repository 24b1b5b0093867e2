import type { ExportedMetric } from '../exported-metric.js';

/** The metrics of one primitive. */
export interface PrimitiveMetrics {
  readonly all: readonly ExportedMetric[];
  /** Returns the function that stops the count. */
  listen(): () => void;
}
