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
