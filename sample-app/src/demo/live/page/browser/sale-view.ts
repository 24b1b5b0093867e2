import type { LiveState, SaleState } from '../../live-state.js';
import { byId, setText } from './elements.js';

/** Shows the numbers of the sale, and which of its buttons can be used. */
export function showSale({ phase, sale, redis }: LiveState): void {
  (byId('start') as HTMLButtonElement).disabled = phase !== 'idle';
  (byId('stop') as HTMLButtonElement).disabled = phase !== 'selling';
  (byId('freeze-holder') as HTMLButtonElement).disabled = phase !== 'selling';
  const button = byId('redis') as HTMLButtonElement;
  button.disabled = phase === 'preparing' || redis === 'given';
  button.dataset['path'] = redis === 'stopped' ? '/redis/start' : '/redis/stop';
  setText(button, redis === 'stopped' ? 'Start Redis' : 'Stop Redis');
  setText(byId('caption'), captionOf(phase, sale));
  if (!sale) return;
  number('left', sale.stockLeft);
  number('accepted', sale.accepted);
  number('oversold', sale.oversold);
  number('rate', Math.round(sale.perSecond));
  number('p99', Math.round(sale.p99));
  number('out', sale.outOfStock);
  number('busy', sale.busy);
  number('errors', sale.errors);
  alarm('oversold', sale.oversold > 0);
  alarm('errors', sale.errors > 0);
}

function captionOf(phase: LiveState['phase'], sale: SaleState | null): string {
  if (!sale) return phase === 'preparing' ? 'The processes of the shop start.' : 'No sale yet.';
  const { number: count, settings, seconds } = sale;
  const { strategy, backend, instances, orders, stock } = settings;
  const locks = ['lock', 'fenced'].includes(strategy) ? `, locks in ${backend}` : '';
  const what = `Sale ${count}: ${orders} orders for ${stock} pieces at ${instances} processes, strategy ${strategy}${locks}`;
  if (phase === 'preparing') return `${what}. The shop is being prepared or counts what it sold.`;
  return phase === 'selling' ? `${what}. Since ${seconds.toFixed(0)} s.` : `${what}. It took ${seconds.toFixed(1)} s.`;
}

function number(id: string, value: number): void {
  setText(byId(id), value.toLocaleString('en'));
}

function alarm(id: string, on: boolean): void {
  byId(id).parentElement?.classList.toggle('alarm', on);
}
