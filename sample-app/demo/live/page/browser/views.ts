import type { LiveState, LogEntry, ProcessState, SaleResult, SaleState } from '../../live-state.js';
import { byId, command, create, setText } from './elements.js';

const ACTIONS = ['freeze', 'cut-off', 'kill'] as const;
type Action = (typeof ACTIONS)[number];

const NAMES: Readonly<Record<Action, string>> = { freeze: 'Freeze', 'cut-off': 'Cut off', kill: 'Kill' };
/** The condition that an action leads to, and the name of the way back. */
const UNDONE: Readonly<Record<Action, { from: ProcessState['condition']; name: string }>> = {
  freeze: { from: 'frozen', name: 'Resume' },
  'cut-off': { from: 'cut off', name: 'Connect' },
  kill: { from: 'dead', name: 'Start again' },
};

/** What answers mean that are neither sold nor out of stock. */
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
  setNumber('left', sale.stockLeft);
  setNumber('accepted', sale.accepted);
  setNumber('oversold', sale.oversold);
  setNumber('rate', Math.round(sale.perSecond));
  setNumber('p99', Math.round(sale.p99));
  setNumber('out', sale.outOfStock);
  setNumber('busy', sale.busy);
  setNumber('errors', sale.errors);
  alarm('oversold', sale.oversold > 0);
  alarm('errors', sale.errors > 0);
}

function captionOf(phase: LiveState['phase'], sale: SaleState | null): string {
  if (!sale) return phase === 'preparing' ? 'The processes of the shop start.' : 'No sale yet.';
  const { number, settings, seconds } = sale;
  const { strategy, backend, instances, orders, stock } = settings;
  const locks = ['lock', 'fenced'].includes(strategy) ? `, locks in ${backend}` : '';
  const what = `Sale ${number}: ${orders} orders for ${stock} pieces at ${instances} processes, strategy ${strategy}${locks}`;
  if (phase === 'preparing') return `${what}. The shop is being prepared or counts what it sold.`;
  return phase === 'selling' ? `${what}. Since ${seconds.toFixed(0)} s.` : `${what}. It took ${seconds.toFixed(1)} s.`;
}

function setNumber(id: string, value: number): void {
  setText(byId(id), value.toLocaleString('en'));
}

function alarm(id: string, on: boolean): void {
  byId(id).parentElement?.classList.toggle('alarm', on);
}

/** Shows each process with its buttons. The elements stay, so that the focus stays where it is. */
export function showProcesses({ processes, lock, phase }: LiveState): void {
  const list = byId('processes');
  while (list.children.length > processes.length) list.lastElementChild?.remove();
  while (list.children.length < processes.length) list.append(item(list.children.length + 1));
  for (const [index, process] of processes.entries()) {
    const element = list.children[index] as HTMLElement;
    const holds = lock?.holder === process.number;
    element.classList.toggle('broken', process.condition !== 'running');
    setText(part(element, 'who strong'), `Process ${process.number}`);
    setText(part(element, 'badge'), holds ? `${process.condition}, holds the lock` : process.condition);
    setText(part(element, 'counts'), `pid ${process.pid} · ${process.accepted} sold · ${process.open} requests open`);
    for (const action of ACTIONS) showButton(element, action, process, phase === 'preparing');
  }
}

function item(number: number): HTMLElement {
  const element = create('li');
  const who = create('div', '', 'who');
  who.append(create('strong'), create('span', '', 'badge'), create('span', '', 'counts'));
  const buttons = create('div', '', 'buttons');
  for (const action of ACTIONS) {
    const button = create('button', '', action) as HTMLButtonElement;
    button.type = 'button';
    button.addEventListener('click', () => {
      void command(`/processes/${number}/${button.dataset['undoes'] === 'yes' ? 'repair' : action}`);
    });
    buttons.append(button);
  }
  element.append(who, buttons);
  return element;
}

function showButton(element: HTMLElement, action: Action, process: ProcessState, preparing: boolean): void {
  const button = part(element, action) as HTMLButtonElement;
  const { condition, number, separable } = process;
  const undoes = condition === UNDONE[action].from;
  const name = undoes ? UNDONE[action].name : NAMES[action];
  const possible = condition === 'running' || undoes || (action === 'kill' && condition !== 'dead');
  button.dataset['undoes'] = undoes ? 'yes' : 'no';
  button.disabled = preparing || !possible || (action === 'cut-off' && !separable);
  setText(button, name);
  if (button.ariaLabel !== `${name} process ${number}`) button.ariaLabel = `${name} process ${number}`;
}

function part(element: HTMLElement, name: string): HTMLElement {
  return element.querySelector(`.${name}`) as HTMLElement;
}

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

/** Adds what is new, so that a screen reader says each entry once. A new process of the demo begins again. */
export function showLog(entries: readonly LogEntry[]): void {
  const list = byId('log');
  const shown = [...list.children] as HTMLElement[];
  const known = new Set(shown.map(({ dataset }) => dataset['key']));
  const keys = new Set(entries.map(keyOf));
  for (const child of shown) {
    if (!keys.has(child.dataset['key'] ?? '')) child.remove();
  }
  const added = entries.filter((entry) => !known.has(keyOf(entry)));
  list.append(...added.map(entryOf));
  const box = byId('happenings');
  if (added.length > 0) box.scrollTop = box.scrollHeight;
}

function entryOf(entry: LogEntry): HTMLElement {
  const element = create('li', '', entry.kind);
  element.dataset['key'] = keyOf(entry);
  element.append(create('time', new Date(entry.at).toLocaleTimeString('en-GB')), entry.text);
  return element;
}

function keyOf({ id, at }: LogEntry): string {
  return `${id} ${at}`;
}

/** Shows a row for each sale that has ended, the newest first. */
export function showResults(results: readonly SaleResult[]): void {
  const heads = [...document.querySelectorAll('thead th')].map((head) => head.textContent ?? '');
  byId('results').replaceChildren(...results.toReversed().map((result) => rowOf(result, heads)));
}

function rowOf(result: SaleResult, heads: readonly string[]): HTMLElement {
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
