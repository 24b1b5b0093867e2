import type { Distribution } from './distribution.js';
import { ExportedMetric } from './exported-metric.js';
import type { Series } from './series.js';
import { SeriesByTemplate } from './series-by-template.js';

type Counted = number | Readonly<Record<string, number>>;
type Labels = { readonly template: string; readonly backend: string };

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
    this.add(name, help, 'gauge', () => this.each((series, labels) => [{ labels, value: value(series) }]));
  }

  /** A histogram of durations. */
  histogram(name: string, help: string, distribution: (counts: Of['counts']) => Distribution): void {
    const samples = (shown: string) => this.each(({ counts }, labels) => distribution(counts).samples(shown, labels));
    this.add(`${name}_seconds`, help, 'histogram', samples);
  }

  private add(name: string, help: string, type: ExportedMetric['type'], samples: ExportedMetric['samples']): void {
    this.all.push(new ExportedMetric(`${this.prefix}${name}`, help, type, samples, () => this.reset()));
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
