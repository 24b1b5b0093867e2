import type { ChartConfiguration, ChartDataset, Chart as ChartJs, PointStyle } from 'chart.js';
import type { ReportData, SaleData } from '../report-data.js';

// The page loads the library before this.
declare const Chart: typeof ChartJs;

const POINT_STYLES: PointStyle[] = ['circle', 'triangle', 'rect', 'rectRot', 'star', 'crossRot'];
/** 0.01, 0.02, 0.05, 0.1, ... */
const STEPS = [-2, -1, 0, 1, 2, 3, 4, 5].flatMap((exponent) =>
  [1, 2, 5].map((digit) => Number(`${digit}e${exponent}`)),
);

const data = JSON.parse(document.getElementById('report-data')?.textContent ?? '') as ReportData;
const moments = data.sales.flatMap(({ course }) => course);
// The same axes for all strategies, so that they can be compared.
const seconds = Math.max(...moments.map((moment) => moment.seconds));
const pieces = Math.max(data.stock, ...moments.map(({ accepted }) => accepted));

let charts = draw();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const chart of charts) chart.destroy();
  charts = draw();
});

function draw(): { destroy(): void }[] {
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.color = colour('text');
  Chart.defaults.borderColor = colour('line');
  return [
    ...data.sales.map((sale, index) => new Chart(canvas(`course-${index}`), courseChart(sale))),
    new Chart(canvas('latency'), latencyChart()),
    new Chart(canvas('throughput'), throughputChart()),
  ];
}

function courseChart({ course: points }: SaleData): ChartConfiguration<'line'> {
  const line = (label: string, name: string, y: (moment: (typeof points)[number]) => number) => ({
    label,
    data: points.map((moment) => ({ x: moment.seconds, y: y(moment) })),
    ...strokes(colour(name)),
    pointRadius: 0,
  });
  return {
    type: 'line',
    data: {
      datasets: [
        line('pieces sold', 'sold', ({ accepted }) => accepted),
        line('stock left', 'left', ({ stockLeft }) => stockLeft),
        {
          label: 'stock at the start',
          data: [0, seconds].map((x) => ({ x, y: data.stock })),
          ...strokes(colour('text')),
          borderWidth: 1.5,
          borderDash: [6, 4],
          pointRadius: 0,
        },
      ],
    },
    options: {
      plugins: { legend: { display: false } },
      interaction: { mode: 'nearest', axis: 'x', intersect: false },
      scales: {
        x: {
          type: 'linear',
          max: seconds,
          title: { display: true, text: 'seconds' },
          ticks: { includeBounds: false },
        },
        y: {
          beginAtZero: true,
          suggestedMax: pieces,
          title: { display: true, text: 'pieces' },
          ticks: { precision: 0 },
        },
      },
    },
  };
}

function latencyChart(): ChartConfiguration<'line'> {
  const milliseconds = data.sales.flatMap((sale) => sale.latency);
  const range = {
    min: STEPS.findLast((step) => step <= Math.min(...milliseconds)) ?? 0.01,
    max: STEPS.find((step) => step >= Math.max(...milliseconds)) ?? 100_000,
  };
  const datasets: ChartDataset<'line'>[] = data.sales.map((sale, index) => ({
    label: sale.strategy,
    data: [...sale.latency],
    ...strokes(seriesColour(index)),
    pointStyle: POINT_STYLES[index % POINT_STYLES.length] as PointStyle,
    pointRadius: 5,
  }));
  return {
    type: 'line',
    data: { labels: data.percentiles.map((percentile) => (percentile === 100 ? 'max' : `${percentile} %`)), datasets },
    options: {
      plugins: { legend: { position: 'bottom', labels: { usePointStyle: true, boxHeight: 8, padding: 16 } } },
      interaction: { mode: 'index', intersect: false },
      scales: {
        x: { title: { display: true, text: 'share of orders answered within' } },
        y: {
          type: 'logarithmic',
          title: { display: true, text: 'milliseconds (logarithmic)' },
          ...range,
          // The library's own labels overlap in a wide range and are too few in a narrow one.
          afterBuildTicks: (axis) => {
            axis.ticks = STEPS.filter((step) => step >= range.min && step <= range.max).map((value) => ({ value }));
          },
          ticks: { autoSkip: false },
        },
      },
    },
  };
}

function throughputChart(): ChartConfiguration<'bar'> {
  return {
    type: 'bar',
    data: {
      labels: data.sales.map(({ strategy, soldPerSecond }) => [strategy, String(Math.round(soldPerSecond))]),
      datasets: [
        {
          label: 'orders accepted per second',
          data: data.sales.map(({ soldPerSecond }) => Math.round(soldPerSecond)),
          backgroundColor: data.sales.map((_, index) => seriesColour(index)),
          maxBarThickness: 36,
        },
      ],
    },
    options: {
      indexAxis: 'y',
      plugins: { legend: { display: false } },
      scales: { x: { title: { display: true, text: 'orders accepted per second' } }, y: { grid: { display: false } } },
    },
  };
}

function strokes(stroke: string) {
  return { borderColor: stroke, backgroundColor: stroke, borderWidth: 2.5 };
}

function seriesColour(index: number): string {
  return colour(`series-${(index % POINT_STYLES.length) + 1}`);
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function canvas(id: string): HTMLCanvasElement {
  return document.getElementById(id) as HTMLCanvasElement;
}
