import type { Caller } from './caller.js';

/** Callers in order of arrival; any of them may leave at any time, at no cost. */
export class CallerQueue {
  first: Caller | undefined;
  private last: Caller | undefined;

  push(caller: Caller): void {
    caller.queued = true;
    caller.before = this.last;
    if (this.last) this.last.after = caller;
    else this.first = caller;
    this.last = caller;
  }

  /** Answers `false` when it is not in the queue. */
  remove(caller: Caller): boolean {
    if (!caller.queued) return false;
    const { before, after } = caller;
    if (before) before.after = after;
    else this.first = after;
    if (after) after.before = before;
    else this.last = before;
    caller.queued = false;
    caller.before = caller.after = undefined;
    return true;
  }
}
