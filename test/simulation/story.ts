// A schedule that violates a rule, made small: the fewest faults, callers and habits that still violate it, as a story.

import type { Outcome } from './schedule.js';
import type { Note } from './world.js';

export interface Smallest {
  readonly without: ReadonlySet<string>;
  readonly outcome: Outcome;
}

type Run = (without: ReadonlySet<string>) => Promise<Outcome>;

/** Leaves out as many parts as it can, many at a time first, while the schedule violates the rule. */
export async function shrink(whole: Outcome, rule: string, run: Run): Promise<Smallest> {
  let smallest: Smallest = { without: new Set(), outcome: whole };
  for (let size = Math.ceil(whole.parts.length / 2); ; size = Math.ceil(size / 2)) {
    let removed = false;
    const parts = smallest.outcome.parts;
    for (let i = 0; i < parts.length; i += size) {
      const without = new Set([...smallest.without, ...parts.slice(i, i + size)]);
      const outcome = await run(without);
      if (!outcome.violations.some((each) => each.rule === rule)) continue;
      smallest = { without, outcome };
      removed = true;
    }
    if (size === 1 && !removed) return smallest;
  }
}

/** What happened until the rule was violated: time in ms, who, what. */
export function storyOf({ notes, parts }: Outcome, rule: string, most = 120): string {
  const end = notes.findIndex((note) => note.who === rule);
  const names = new Map<string, string>();
  const lines = notes.slice(0, end + 1).flatMap((note) => (isTold(note) ? [lineOf(note, names)] : []));
  const left = lines.length > most ? [`(${lines.length - most} lines before)`] : [];
  const told = parts.filter((part) => !/ call \d+$/.test(part));
  return [`With ${told.join(', ')}:`, ...left, ...lines.slice(-most)].join('\n');
}

export function lineOf({ time, who, what }: Note, names = new Map<string, string>()): string {
  // Tickets and channels name the process that was the first to send them.
  const named = what.replaceAll(UUID, (uuid) => {
    if (!names.has(uuid)) names.set(uuid, who.replace(/\/\d+$/, ''));
    return names.get(uuid) ?? uuid;
  });
  return `${time.toFixed(3).padStart(10)}  ${who.padEnd(9)} ${named}`;
}

const UUID = /[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}/g;

/** What a client says of itself when it connects tells nothing. */
function isTold({ who, what }: Note): boolean {
  if (who === 'schedule') return false;
  return !/^(hello|client|info|select|acl|ping|script|publish lock:process:beat)\b/i.test(what);
}
