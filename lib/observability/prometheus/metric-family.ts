type Counted = number | Readonly<Record<string, number>>;
type Labels = { readonly template: string; readonly backend: string };

/** The metrics of one subject, such as locks. */
export interface MetricSet {
  readonly all: readonly ExportedMetric[];
  /** Returns the function that stops the count. */
  listen(): () => void;
}

/** Metrics with the labels `template` and `backend`, all made from the same series of numbers. */
export class MetricFamily<Of extends Series<Of['counts']>> {
  readonly all: ExportedMetric[] = [];
  private readonly byBackend = new Map<string, SeriesByTemplate<Of>>();

  constructor(
    private readonly prefix: string,
    private readonly maxTemplates: number,
    private readonly make: () => Of,
  ) {}

  /** The numbers of that template. */
  of({ backend, template }: { readonly backend: string; readonly template: string | undefined }): Of {
    let series = this.byBackend.get(backend);
    if (!series) {
      series = new SeriesByTemplate(this.maxTemplates, this.make);
      this.byBackend.set(backend, series);
    }
    return series.of(template);
  }

  /** A counter; with a `label`, one for each of its values. */
  counter(name: string, help: string, counted: (counts: Of['counts']) => Counted, label = ''): void {
    const samples = () =>
      this.each((series, labels) => {
        const count = counted(series.counts);
        if (typeof count === 'number') return [{ labels, value: count }];
        return Object.entries(count).map(([each, value]) => ({ labels: { ...labels, [label]: each }, value }));
      });
    this.add(`${name}_total`, help, 'counter', samples);
  }

  gauge(name: string, help: string, value: (series: Of) => number): void {
    this.add(name, help, 'gauge', this.valueOf(value));
  }

  /** A gauge of which that of the worker with the latest counts, not the sum of all. */
  latest(name: string, help: string, value: (series: Of) => number): void {
    this.add(name, help, 'gauge', this.valueOf(value), 'max');
  }

  /** A histogram of durations. */
  histogram(name: string, help: string, distribution: (counts: Of['counts']) => Distribution): void {
    const samples = (shown: string) => this.each(({ counts }, labels) => distribution(counts).samples(shown, labels));
    this.add(`${name}_seconds`, help, 'histogram', samples);
  }

  private valueOf(value: (series: Of) => number): ExportedMetric['samples'] {
    return () => this.each((series, labels) => [{ labels, value: value(series) }]);
  }

  private add(
    name: string,
    help: string,
    type: ExportedMetric['type'],
    samples: ExportedMetric['samples'],
    aggregator?: ExportedMetric['aggregator'],
  ): void {
    this.all.push(new ExportedMetric(`${this.prefix}${name}`, help, type, samples, () => this.reset(), aggregator));
  }

  private each<T>(list: (series: Of, labels: Labels) => readonly T[]): T[] {
    return [...this.byBackend].flatMap(([backend, series]) =>
      series.all().flatMap(([template, each]) => list(each, { template, backend })),
    );
  }

  private reset(): void {
    for (const series of this.byBackend.values()) for (const [, each] of series.all()) each.reset();
  }
}

/** The numbers of one template: what was counted, and in other fields what is the case now. */
export class Series<Counts> {
  counts: Counts;

  constructor(private readonly zero: () => Counts) {
    this.counts = zero();
  }

  /** Forgets what was counted, and keeps what is the case now. */
  reset(): void {
    this.counts = this.zero();
  }
}

/** A count for each of the names, such as the reasons of a failure. */
export function zeros<Name extends string>(...names: readonly Name[]): Record<Name, number> {
  return Object.fromEntries(names.map((name) => [name, 0])) as Record<Name, number>;
}

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

/** One number with its labels. */
export interface Sample {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  /** For the parts of a histogram: the name with its ending. */
  readonly metricName?: string;
}

export type MetricType = 'counter' | 'gauge' | 'histogram';

/**
 * A metric that a registry of prom-client reads when it is scraped. The numbers are kept elsewhere, in plain fields:
 * an event costs less than a tenth of what `inc()` of prom-client does, which makes a key of the labels each time.
 */
export class ExportedMetric {
  constructor(
    /** The registry shortens it for the format OpenMetrics. */
    public name: string,
    readonly help: string,
    readonly type: MetricType,
    readonly samples: (name: string) => Sample[],
    /** Called by `resetMetrics()` of the registry. */
    readonly reset: () => void,
    /** What prom-client makes of the numbers of several workers of `node:cluster`. */
    readonly aggregator: 'sum' | 'max' = 'sum',
  ) {}

  /** Called by the registry. */
  async get(): Promise<object> {
    const { name, help, type, aggregator } = this;
    return { name, help, type, aggregator, values: this.samples(name) };
  }
}

/** The label of what no decorator did, and of the templates beyond the limit. */
const NONE = 'none';
const OTHER = 'other';

/** One series of numbers for each template, and a common one for all templates beyond the limit. */
export class SeriesByTemplate<Series> {
  /** Without the templates beyond the limit, of which there may be any number: a leadership is named by its caller. */
  private readonly byTemplate = new Map<string | undefined, Series>();
  private readonly labelled = new Map<string, Series>();

  constructor(
    private readonly maxTemplates: number,
    private readonly make: () => Series,
  ) {}

  of(template: string | undefined): Series {
    return this.byTemplate.get(template) ?? this.add(template);
  }

  /** All series, with their labels. */
  all(): readonly (readonly [template: string, series: Series])[] {
    return [...this.labelled];
  }

  private add(template: string | undefined): Series {
    const label = this.labelOf(template);
    let series = this.labelled.get(label);
    if (!series) {
      series = this.make();
      this.labelled.set(label, series);
    }
    if (label !== OTHER) this.byTemplate.set(template, series);
    return series;
  }

  private labelOf(template: string | undefined): string {
    if (template === undefined) return NONE;
    const { size } = this.byTemplate;
    const templates = this.byTemplate.has(undefined) ? size - 1 : size;
    return templates < this.maxTemplates ? template : OTHER;
  }
}
