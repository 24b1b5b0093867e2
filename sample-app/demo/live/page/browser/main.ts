import type { LiveEvents } from '../../live-state.js';
import { CourseChart, ResultChart } from './charts.js';
import { byId, command, setText } from './elements.js';
import { showLock, showLog, showProcesses, showResults, showSale } from './views.js';

const course = new CourseChart();
const resultCharts = [
  new ResultChart('rates', ({ perSecond }) => perSecond),
  new ResultChart('latencies', ({ p99 }) => p99),
];
const events = new EventSource('/events');

on('course', (moments) => course.replace(moments));
on('results', (results) => {
  showResults(results);
  for (const chart of resultCharts) chart.show(results);
});
on('log', showLog);
on('state', (state) => {
  showSale(state);
  showProcesses(state);
  showLock(state);
  if (state.sale && state.moment) course.add(state.moment, state.sale.settings.stock);
});
events.addEventListener('open', () => connected(true));
events.addEventListener('error', () => connected(false));

byId('sale-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const given = new FormData(byId('sale-form') as HTMLFormElement);
  const text = (name: string) => given.get(name) as string;
  const numbers = ['instances', 'stock', 'orders', 'concurrency'].map((name) => [name, Number(text(name))]);
  void command('/sales', {
    strategy: text('strategy'),
    backend: text('backend'),
    ...(Object.fromEntries(numbers) as Record<string, number>),
  });
});
byId('stop').addEventListener('click', () => void command('/sales/stop'));
byId('freeze-holder').addEventListener('click', () => void command('/holder/freeze'));
byId('redis').addEventListener('click', ({ currentTarget }) => {
  void command((currentTarget as HTMLElement).dataset['path'] ?? '/redis/stop');
});

function on<Name extends keyof LiveEvents>(name: Name, show: (data: LiveEvents[Name]) => void): void {
  events.addEventListener(name, ({ data }: MessageEvent<string>) => show(JSON.parse(data) as LiveEvents[Name]));
}

function connected(now: boolean): void {
  const line = byId('connection');
  line.classList.toggle('away', !now);
  setText(line, now ? 'Connected' : 'Not connected: trying again');
}
