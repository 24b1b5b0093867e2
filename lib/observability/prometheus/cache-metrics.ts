import { cacheChannels, type CacheEventTypes } from '../../events/cache-channels.js';
import { listenAll, type Listeners } from '../event-stream.js';
import {
  ExportedMetric,
  SeriesByTemplate,
  Distribution,
  Series,
  type MetricSet,
  type MetricType,
  type Sample,
} from './metric-family.js';

type Counts = CacheSeries['counts'];

/** Counts the events of caches, by template. */
export class CacheMetrics implements MetricSet {
  readonly all: readonly ExportedMetric[];
  private readonly series: SeriesByTemplate<CacheSeries>;
  private totals = new CacheTotals();
  private openBreakers = 0;

  constructor(prefix: string, maxTemplates: number, buckets: readonly number[]) {
    this.series = new SeriesByTemplate(maxTemplates, () => new CacheSeries(buckets));
    const metric = (name: string, help: string, type: MetricType, samples: (name: string) => Sample[]) =>
      new ExportedMetric(`${prefix}cache_${name}`, help, type, samples, () => this.reset());
    const each = (samples: (series: CacheSeries, template: string) => Sample[]) => () =>
      this.series.all().flatMap(([template, series]) => samples(series, template));
    const counter = (name: string, help: string, value: (counts: Counts) => number) =>
      metric(
        name,
        help,
        'counter',
        each(({ counts }, template) => [{ labels: { template }, value: value(counts) }]),
      );
    const total = (name: string, help: string, value: () => number, type: MetricType = 'counter') =>
      metric(name, help, type, () => [{ labels: {}, value: value() }]);
    this.all = [
      metric('hits_total', 'Reads that found a value', 'counter', each(hits)),
      counter('misses_total', 'Reads that found no value', ({ misses }) => misses),
      metric('loads_total', 'Loads that have ended', 'counter', each(loads)),
      metric('loading', 'Loads that run', 'gauge', each(loading)),
      metric('load_seconds', 'Time that loaders ran', 'histogram', (name) =>
        each(({ counts }, template) => counts.load.samples(name, { template }))(),
      ),
      counter('refresh_failed_total', 'Loads in the background that failed', ({ refreshFailed }) => refreshFailed),
      counter('commits_refused_total', 'Loaded values that the store refused', ({ commitsRefused }) => commitsRefused),
      metric('invalidations_total', 'Invalidations, by what they name', 'counter', () =>
        Object.entries(this.totals.invalidations).map(([by, value]) => ({ labels: { by }, value })),
      ),
      total('unconfirmed_total', 'Deletions that the store did not confirm at first', () => this.totals.unconfirmed),
      total('confirmed_total', 'Deletions that the store confirmed later', () => this.totals.confirmed),
      total('breaker_opened_total', 'Times that the circuit breaker opened', () => this.totals.breakerOpened),
      total('breaker_open', 'Open circuit breakers', () => this.openBreakers, 'gauge'),
    ];
  }

  listen(): () => void {
    const listeners: Listeners<CacheEventTypes> = {
      hit: ({ template, level, stale }) => void (this.counts(template).hits[stale ? 'stale' : level] += 1),
      miss: ({ template }) => void (this.counts(template).misses += 1),
      loadStarted: ({ template }) => void (this.series.of(template).loading += 1),
      load: ({ template, load, took, error }) => {
        const series = this.series.of(template);
        series.counts.loads[error === undefined ? 'success' : 'error'] += 1;
        if (load && series.loading > 0) series.loading -= 1;
        if (took !== undefined) series.counts.load.observe(took);
      },
      refreshFailed: ({ template }) => void (this.counts(template).refreshFailed += 1),
      commitRefused: ({ template }) => void (this.counts(template).commitsRefused += 1),
      invalidate: ({ key, tag }) => {
        this.totals.invalidations[key !== undefined ? 'key' : tag !== undefined ? 'tag' : 'matching'] += 1;
      },
      unconfirmed: () => void (this.totals.unconfirmed += 1),
      confirmed: () => void (this.totals.confirmed += 1),
      breakerOpened: () => {
        this.totals.breakerOpened += 1;
        this.openBreakers += 1;
      },
      breakerClosed: () => void (this.openBreakers = Math.max(0, this.openBreakers - 1)),
    };
    return listenAll(cacheChannels, listeners);
  }

  private counts(template: string | undefined): Counts {
    return this.series.of(template).counts;
  }

  private reset(): void {
    for (const [, series] of this.series.all()) series.reset();
    this.totals = new CacheTotals();
  }
}

/** What is counted for all templates together. */
class CacheTotals {
  readonly invalidations = { key: 0, tag: 0, matching: 0 };
  unconfirmed = 0;
  confirmed = 0;
  breakerOpened = 0;
}

function hits({ counts: { hits: counted } }: CacheSeries, template: string): Sample[] {
  return [
    { labels: { template, level: 'first', stale: 'false' }, value: counted.first },
    { labels: { template, level: 'second', stale: 'false' }, value: counted.second },
    { labels: { template, level: 'second', stale: 'true' }, value: counted.stale },
  ];
}

function loads({ counts }: CacheSeries, template: string): Sample[] {
  return Object.entries(counts.loads).map(([outcome, value]) => ({ labels: { template, outcome }, value }));
}

function loading(series: CacheSeries, template: string): Sample[] {
  return [{ labels: { template }, value: series.loading }];
}

/** The numbers of the cached values of one template. */
class CacheSeries extends Series<CacheCounts> {
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
