import type { Chart as ChartJs, Point } from 'chart.js';
import type { Moment } from '../../../html-report/report-data.js';
import type { SaleResult } from '../../live-state.js';
import { byId } from './elements.js';

// The page loads the library before this.
declare const Chart: typeof ChartJs;

const MOST_POINTS = 600;

Chart.defaults.animation = false;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
const dark = matchMedia('(prefers-color-scheme: dark)');

/** Pieces sold and stock left over time. */
export class CourseChart {
  private readonly sold: Point[] = [];
  private readonly left: Point[] = [];
  private readonly stock: Point[] = [];
  private chart = this.draw();

  constructor() {
    dark.addEventListener('change', () => {
      this.chart.destroy();
      this.chart = this.draw();
    });
  }

  replace(moments: readonly Moment[]): void {
    this.sold.splice(0, Infinity, ...moments.map(({ seconds, accepted }) => ({ x: seconds, y: accepted })));
    this.left.splice(0, Infinity, ...moments.map(({ seconds, stockLeft }) => ({ x: seconds, y: stockLeft })));
    this.stock.length = 0;
    this.chart.update();
  }

  /** `total`: pieces at the start. */
  add({ seconds, accepted, stockLeft }: Moment, total: number): void {
    if (seconds <= (this.sold.at(-1)?.x ?? -1) && this.stock.length > 0) return;
    this.sold.push({ x: seconds, y: accepted });
    this.left.push({ x: seconds, y: stockLeft });
    for (const line of [this.sold, this.left]) if (line.length > MOST_POINTS) line.splice(1, 1);
    this.stock.splice(0, 2, { x: 0, y: total }, { x: seconds, y: total });
    this.chart.update();
  }

  private draw(): ChartJs<'line', Point[]> {
    setColours();
    const line = { borderWidth: 2.5, pointRadius: 0 };
    return new Chart<'line', Point[]>(byId('course') as HTMLCanvasElement, {
      type: 'line',
      data: {
        datasets: [
          { label: 'pieces sold', data: this.sold, ...line, borderColor: colour('sold') },
          { label: 'stock left', data: this.left, ...line, borderColor: colour('left') },
          {
            label: 'stock at the start',
            data: this.stock,
            ...line,
            borderColor: colour('text'),
            borderWidth: 1.5,
            borderDash: [6, 4],
          },
        ],
      },
      options: {
        plugins: { legend: { display: false } },
        interaction: { mode: 'nearest', axis: 'x', intersect: false },
        scales: {
          x: { type: 'linear', min: 0, title: { display: true, text: 'seconds' } },
          y: { beginAtZero: true, title: { display: true, text: 'pieces' }, ticks: { precision: 0 } },
        },
      },
    });
  }
}

/** A value of the newest sale of each strategy, as bars. */
export class ResultChart {
  private shown: readonly SaleResult[] = [];
  private chart: ChartJs<'bar'>;

  constructor(
    private readonly id: string,
    private readonly value: (result: SaleResult) => number,
  ) {
    this.chart = this.draw();
    dark.addEventListener('change', () => this.redraw());
  }

  show(results: readonly SaleResult[]): void {
    this.shown = [...new Map(results.map((result) => [result.settings.strategy, result])).values()];
    this.redraw();
  }

  private redraw(): void {
    this.chart.destroy();
    this.chart = this.draw();
  }

  private draw(): ChartJs<'bar'> {
    setColours();
    return new Chart<'bar'>(byId(this.id) as HTMLCanvasElement, {
      type: 'bar',
      data: {
        labels: this.shown.map(({ settings }) => settings.strategy),
        datasets: [
          {
            data: this.shown.map((result) => Math.round(this.value(result))),
            backgroundColor: colour('left'),
            maxBarThickness: 28,
          },
        ],
      },
      options: {
        indexAxis: 'y',
        plugins: { legend: { display: false } },
        scales: { x: { beginAtZero: true, ticks: { precision: 0 } }, y: { grid: { display: false } } },
      },
    });
  }
}

/** What the library takes for the axes of a new chart. */
function setColours(): void {
  Chart.defaults.color = colour('text');
  Chart.defaults.borderColor = colour('line');
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
