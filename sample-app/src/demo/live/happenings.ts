import { plural } from '../plural.js';
import type { SaleResult } from './live-state.js';

/** The row refused a holder whose lock had passed on: status and code of the answer. */
export const STALE_WRITE = '409 STALE_FENCING_TOKEN';
/** The process noticed that its lease had ended. */
export const LOST_LOCK = '500 LOCK_LOST';

/** As in "You froze process 2". */
export function faultText(verb: string, number: number): string {
  return `${verb} process ${number}`;
}

/** What an answer means that shows how a strategy defends the stock; `undefined` for other answers. */
export function refusalText(kind: string, number: number | undefined): string | undefined {
  const who = number === undefined ? 'a process that has ended' : `process ${number}`;
  if (kind === STALE_WRITE) return `Stale write refused: the row has seen a higher fencing token than that of ${who}`;
  if (kind === LOST_LOCK) return `Lost lock noticed: ${who} gave an order up, because its lease had ended`;
  return undefined;
}

export function resultText({ number, settings, ...result }: SaleResult): string {
  const sold = `Sale ${number} (${settings.strategy}) ${result.ending === 'stopped' ? 'was ended early and sold' : 'sold'}`;
  if (result.oversold > 0) return `${sold} ${plural(result.oversold, 'piece')} more than it had`;
  if (!result.sound)
    return `${sold} ${plural(result.accepted, 'piece')}, and its stock shows ${result.stockLeft} as left`;
  return `${sold} ${plural(result.accepted, 'piece')}, and none twice`;
}
