import type { LiveState } from '../../live-state.js';
import { byId, create, setText } from './elements.js';

const MEANINGS: Readonly<Record<string, string>> = {
  '409 STALE_FENCING_TOKEN': 'stale write refused by the row',
  '409 CONTENDED': 'too many orders at once',
  '423 LOCK_TIMEOUT': 'the lock stayed taken',
  '500 LOCK_LOST': 'lost lock noticed by its process',
  '503 LOCK_BACKEND': 'the store of the locks does not answer',
  '503 CACHE_BACKEND': 'Redis did not confirm that a cached product is gone',
  '503 DATABASE_UNAVAILABLE': 'the database ended the transaction',
  'no answer': 'given up after a minute',
  ECONNREFUSED: 'the process is dead',
  ECONNRESET: 'the process died with the order',
};

/** Shows who holds the lock of the product, who held it before, and what was refused. */
export function showLock({ lock, sale }: LiveState): void {
  setText(byId('holder'), lock?.unknown === undefined ? nameOf(lock?.holder ?? null) : 'unknown: no answer');
  setText(byId('waiting'), String(lock?.waiting ?? 0));
  setText(byId('lease'), lock && lock.ttl > 0 ? `${(lock.ttl / 1_000).toFixed(1)} s` : '–');
  setText(byId('token'), String(lock?.token ?? lock?.grants[0]?.token ?? '–'));
  const grants = (lock?.grants ?? []).map(({ token, holder }) => `${token}: ${nameOf(holder)}`);
  showLines('grants', grants, 'None: only the strategies lock and fenced take this lock.');
  const refusals = Object.entries(sale?.refusals ?? {}).map(([kind, times]) => {
    const meaning = MEANINGS[kind];
    return `${times} × ${kind}${meaning === undefined ? '' : `: ${meaning}`}`;
  });
  showLines('refusals', refusals, 'None.');
}

function nameOf(holder: number | string | null): string {
  if (holder === null) return 'nobody';
  return typeof holder === 'number' ? `process ${holder}` : holder;
}

function showLines(id: string, lines: readonly string[], otherwise: string): void {
  const list = byId(id);
  const shown = lines.length > 0 ? lines : [otherwise];
  while (list.children.length > shown.length) list.lastElementChild?.remove();
  while (list.children.length < shown.length) list.append(create('li'));
  for (const [index, line] of shown.entries()) setText(list.children[index] as HTMLElement, line);
}
