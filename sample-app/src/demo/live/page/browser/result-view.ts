import type { SaleResult } from '../../live-state.js';
import { byId, create } from './elements.js';

/** Shows a row for each sale that has ended, the newest first. */
export function showResults(results: readonly SaleResult[]): void {
  const heads = [...document.querySelectorAll('thead th')].map((head) => head.textContent ?? '');
  byId('results').replaceChildren(...results.toReversed().map((result) => row(result, heads)));
}

function row(result: SaleResult, heads: readonly string[]): HTMLElement {
  const { number, settings, faults, sound } = result;
  const locks = ['lock', 'fenced'].includes(settings.strategy) ? ` in ${settings.backend}` : '';
  const cells = [
    result.accepted,
    result.stockLeft,
    result.oversold,
    result.lost,
    result.resent,
    result.staleWrites,
    result.lostLocks,
    `${(result.standstill / 1_000).toFixed(1)} s`,
    Math.round(result.perSecond),
    result.p99.toFixed(1),
    faults.length === 0 ? 'none' : String(faults.length),
  ];
  const element = create('tr', '', sound ? '' : 'broken');
  const name = create('th', `${number}: ${settings.strategy}${locks}${sound ? '' : ' ✗'}`);
  name.setAttribute('scope', 'row');
  element.append(name);
  for (const [index, text] of cells.entries()) {
    const cell = create('td', String(text));
    cell.dataset['column'] = heads[index + 1] ?? '';
    element.append(cell);
  }
  return element;
}
