import Table from 'cli-table3';
import ms from 'ms';
import type { LockFields } from '../admin/lock-fields.js';
import type { LockWaiter } from '../lock/hold/lock.js';

const COLUMNS = ['name', 'label', 'host', 'pid', 'held for', 'ttl left', 'token', 'waiting'];
/** Of names, labels and tokens, numbers and times stand to the right. */
const ALIGNED: Table.HorizontalAlignment[] = ['left', 'left', 'left', 'right', 'right', 'right', 'right', 'right'];
const NONE = '-';
/** A longer cell is cut: each row of a table is as wide as its widest one. */
const WIDEST = 60;

const NO_BORDERS = Object.fromEntries(
  ['top', 'top-mid', 'top-left', 'top-right', 'mid', 'mid-mid', 'left', 'left-mid', 'right', 'right-mid']
    .concat(['bottom', 'bottom-mid', 'bottom-left', 'bottom-right'])
    .map((place) => [place, '']),
);
/** Lines without borders, so that other programs can read the columns. */
const PLAIN = {
  chars: { ...NO_BORDERS, middle: '  ' },
  style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
};

/** A line for each lock, below a heading. */
export function lockTable(locks: readonly LockFields[], now = Date.now()): string {
  const table = new Table({ ...PLAIN, head: COLUMNS, colAligns: ALIGNED });
  for (const lock of locks) {
    const { host = NONE, pid = NONE, since, error } = lock;
    if (error !== undefined) {
      table.push([cell(lock.name), { colSpan: COLUMNS.length - 1, content: visible(error) }]);
      continue;
    }
    const heldFor = since === undefined ? NONE : duration(now - Date.parse(since));
    const times = [heldFor, duration(lock.ttl)];
    table.push([
      cell(lock.name),
      cut(holderOf(lock)),
      cell(host),
      pid,
      ...times,
      lock.fencingToken ?? NONE,
      lock.waiting,
    ]);
  }
  return table.toString();
}

/** A line for each field. */
export function fieldTable(fields: Readonly<Record<string, unknown>>): string {
  const table = new Table(PLAIN);
  for (const [name, value] of Object.entries(fields)) table.push([name, visible(String(value))]);
  return table.toString();
}

/** Who has the lock, as text: the label of its process, else the owner as stored. */
export function holderOf({ label, owner, readers }: Pick<LockFields, 'label' | 'owner' | 'readers'>): string {
  return visible(readers === undefined ? (label ?? owner) : `${readers} readers`);
}

/** Who waits, as text, the next one first: the labels of the processes, else what they would be stored as. */
export function queueOf(waiters: readonly LockWaiter[]): string {
  const texts = waiters.map(({ label, owner, mode }) => `${label ?? owner}${mode === 'read' ? ' (read)' : ''}`);
  return texts.length > 0 ? texts.join(', ') : NONE;
}

/** Keys may contain control characters, which would change the terminal. */
export function visible(text: string): string {
  return text.replace(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
}

function cell(text: string): string {
  return cut(visible(text));
}

function cut(text: string): string {
  return text.length > WIDEST ? `${text.slice(0, WIDEST - 1)}…` : text;
}

/** Milliseconds for readers: `12s`. */
export function duration(milliseconds: number | null): string {
  return milliseconds === null ? 'never' : ms(Math.max(0, Math.round(milliseconds)));
}

/** Prints lines for readers, or with `--json` one line of JSON. */
export function print(json: true | undefined, value: object, text: () => string): void {
  process.stdout.write(`${json ? JSON.stringify(value) : text()}\n`);
}
