import { randomUUID } from 'node:crypto';
import type { LatchState, LatchStore } from '../../contracts/primitive-stores.js';
import type { PrimitiveBackendError } from '../../errors/primitive-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import type { PrimitiveCalls, PrimitiveHome } from '../runtime.js';

/** How often (ms) a process looks at a latch that it waits for: what a lost message costs. */
const PERIOD = 1_000;

/** What a look is in errors. */
export const READING = 'reading of latch';

/** What waits for a latch. */
export interface LatchWaiter {
  opened(): void;
  /** Not open yet; `undefined` if there is no such latch. */
  looked(state: LatchState | undefined): void;
  /** The latch could not be read. It will be looked at again. */
  failed(error: PrimitiveBackendError): void;
}

/** The waiters of one latch, who share its looks. */
interface Watched {
  readonly waiters: Set<LatchWaiter>;
  timer: NodeJS.Timeout | undefined;
  /** Whether a look is under way; another one follows it if somebody came meanwhile. */
  looking: boolean;
  again: boolean;
}

/** The latches of one backend that this process waits for. It looks at each when a message says that it has opened. */
export class LatchWatch {
  readonly store: LatchStore;
  readonly calls: PrimitiveCalls;
  readonly source: LockSource;
  private readonly process = randomUUID();
  private readonly watched = new Map<string, Watched>();

  constructor({ stores, calls, source }: PrimitiveHome) {
    this.store = stores.latches;
    this.calls = calls;
    this.source = source;
  }

  add(name: string, waiter: LatchWaiter): void {
    if (this.watched.size === 0) this.listen();
    let watched = this.watched.get(name);
    if (!watched) {
      watched = { waiters: new Set(), timer: undefined, looking: false, again: false };
      this.watched.set(name, watched);
    }
    watched.waiters.add(waiter);
    this.look(name, watched);
  }

  remove(name: string, waiter: LatchWaiter): void {
    const watched = this.watched.get(name);
    if (!watched?.waiters.delete(waiter) || watched.waiters.size > 0) return;
    this.forget(name, watched);
  }

  private listen(): void {
    this.store.listen({
      process: this.process,
      // A message may have been under way for any time, and speak of an earlier latch of that name: the look decides.
      onOpen: (name) => {
        const watched = this.watched.get(name);
        if (watched) this.look(name, watched);
      },
      onConnected: () => {
        for (const [name, watched] of this.watched) this.look(name, watched);
      },
    });
  }

  private look(name: string, watched: Watched): void {
    clearTimeout(watched.timer);
    watched.again = watched.looking;
    if (watched.looking) return;
    watched.looking = true;
    // Who comes while the look is under way waits for the next one: the latch may have opened since this was sent.
    const asking = [...watched.waiters];
    const answer = (tell: (waiter: LatchWaiter) => void) => {
      for (const waiter of asking) if (watched.waiters.has(waiter)) tell(waiter);
    };
    this.calls
      .run(READING, name, () => this.store.look(name, this.process))
      .then(
        (state) => {
          if (state?.remaining === 0) this.open(name);
          else answer((waiter) => waiter.looked(state));
        },
        (error: PrimitiveBackendError) => answer((waiter) => waiter.failed(error)),
      )
      .finally(() => this.lookLater(name, watched));
  }

  private lookLater(name: string, watched: Watched): void {
    watched.looking = false;
    if (this.watched.get(name) !== watched) return;
    if (watched.again) this.look(name, watched);
    else watched.timer = setTimeout(() => this.look(name, watched), PERIOD).unref();
  }

  private open(name: string): void {
    const watched = this.watched.get(name);
    if (!watched) return;
    this.forget(name, watched);
    for (const waiter of watched.waiters) waiter.opened();
  }

  private forget(name: string, watched: Watched): void {
    clearTimeout(watched.timer);
    this.watched.delete(name);
    if (this.watched.size === 0) this.store.unlisten(this.process);
  }
}
