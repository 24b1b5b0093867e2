import type { LogEntry } from './live-state.js';

const MOST_ENTRIES = 60;

/** The last things that happened, the oldest first. */
export class EventLog {
  private kept: readonly LogEntry[] = [];
  private lastId = 0;

  constructor(private readonly changed: () => void) {}

  get entries(): readonly LogEntry[] {
    return this.kept;
  }

  add(kind: LogEntry['kind'], text: string): void {
    this.lastId += 1;
    this.kept = [...this.kept, { id: this.lastId, at: Date.now(), text, kind }].slice(-MOST_ENTRIES);
    this.changed();
  }
}
