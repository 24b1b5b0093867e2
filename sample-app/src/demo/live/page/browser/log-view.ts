import type { LogEntry } from '../../live-state.js';
import { byId, create } from './elements.js';

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
  list.append(...added.map(line));
  const box = byId('happenings');
  if (added.length > 0) box.scrollTop = box.scrollHeight;
}

function line(entry: LogEntry): HTMLElement {
  const element = create('li', '', entry.kind);
  element.dataset['key'] = keyOf(entry);
  element.append(create('time', new Date(entry.at).toLocaleTimeString('en-GB')), entry.text);
  return element;
}

function keyOf({ id, at }: LogEntry): string {
  return `${id} ${at}`;
}
