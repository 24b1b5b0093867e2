import { Distribution } from './distribution.js';
import { Series } from './series.js';

/** The numbers of the cached values of one template. */
export class CacheSeries extends Series<CacheCounts> {
  /** Loads that run. */
  loading = 0;

  constructor(buckets: readonly number[]) {
    super(() => new CacheCounts(buckets));
  }
}

class CacheCounts {
  readonly hits = { first: 0, second: 0, stale: 0 };
  misses = 0;
  readonly loads = { success: 0, error: 0 };
  refreshFailed = 0;
  commitsRefused = 0;
  readonly load: Distribution;

  constructor(buckets: readonly number[]) {
    this.load = new Distribution(buckets);
  }
}
