import type {
  AcquirePermitsAnswer,
  AcquirePermitsRequest,
  PermitReleaseAnswer,
  PermitRequest,
  PermitsGranted,
  RenewPermitsRequest,
  SemaphoreBeatAnswer,
  SemaphoreBeatRequest,
  SemaphoreListener,
  SemaphoreOutlook,
  SemaphoreStore,
  SemaphoreUse,
  WaiterState,
} from '../../contracts/primitive-stores.js';
import { processOf } from '../../contracts/lock-requests.js';
import { ExpiringMap } from './expiring-map.js';

// As at Redis:
/** The lease (ms) of a waiter that is granted permits. */
const CLAIM = 2_000;
/** How long (ms) the number of permits is kept. */
const MEMORY = 60_000;
/** How many fencing tokens a grant reserves. */
const TOKENS = 32;

/** Semaphores in the memory of the process, for modules that share the backend. */
export class MemorySemaphores {
  private readonly semaphores = new ExpiringMap<MemorySemaphore>();
  private readonly listeners = new Map<string, SemaphoreListener>();

  open(prefix: string | undefined): SemaphoreStore {
    const keyOf = (name: string) => JSON.stringify([prefix, name]);
    return {
      acquire: async (request) => this.acquire(keyOf(request.name), request),
      renew: async (request) => this.renew(keyOf(request.name), request),
      release: async (request) => this.release(keyOf(request.name), request),
      beat: async (request) => this.beat(keyOf(request.name), request),
      use: async (name) => this.use(keyOf(name)),
      listen: (listener) => void this.listeners.set(listener.process, listener),
      unlisten: (process) => void this.listeners.delete(process),
    };
  }

  private acquire(key: string, request: AcquirePermitsRequest): AcquirePermitsAnswer {
    const { ticket, count, permits, ttl, queues, leastToken = 0 } = request;
    const semaphore = this.semaphores.get(key) ?? new MemorySemaphore();
    const present = semaphore.grantOf(ticket);
    if (present) return present;
    semaphore.permits = permits;
    semaphore.lastToken = Math.max(semaphore.lastToken, leastToken - 1);
    const blocked = this.handOut(semaphore, [ticket]);
    const granted = semaphore.grantOf(ticket);
    if (granted) return granted;
    if (!blocked && count <= permits - semaphore.taken) semaphore.hold({ ticket, count }, ttl);
    else if (queues && !semaphore.queue.some((waiter) => waiter.ticket === ticket))
      semaphore.queue.push({ ticket, count });
    this.keep(key, semaphore);
    return semaphore.grantOf(ticket) ?? { status: 'busy', ...outlookOf(semaphore) };
  }

  private renew(key: string, { ticket, ttl }: RenewPermitsRequest): number | undefined {
    const semaphore = this.semaphores.get(key);
    const remaining = semaphore?.renew(ticket, ttl);
    if (semaphore) this.keep(key, semaphore);
    return remaining;
  }

  private release(key: string, { ticket }: PermitRequest): PermitReleaseAnswer {
    const semaphore = this.semaphores.get(key);
    const live = semaphore?.release(ticket) ?? false;
    if (semaphore) this.handOut(semaphore, []);
    return { live, resent: false };
  }

  private beat(key: string, { waiters }: SemaphoreBeatRequest): SemaphoreBeatAnswer {
    const semaphore = this.semaphores.get(key);
    if (!semaphore) return { states: waiters.map(() => ({ status: 'gone' })), nextEnd: Infinity, lastToken: 0 };
    const tickets = waiters.map(({ ticket }) => ticket);
    this.handOut(semaphore, tickets);
    const waiting = new Set(semaphore.queue.map(({ ticket }) => ticket));
    const states = tickets.map(
      (ticket): WaiterState => semaphore.grantOf(ticket) ?? { status: waiting.has(ticket) ? 'waiting' : 'gone' },
    );
    this.keep(key, semaphore);
    return { states, ...outlookOf(semaphore) };
  }

  private use(key: string): SemaphoreUse {
    const semaphore = this.semaphores.get(key);
    return { permits: semaphore?.permits, taken: semaphore?.taken ?? 0 };
  }

  /** Those in `asking` learn of their grants from the answer, others by a message after it. */
  private handOut(semaphore: MemorySemaphore, asking: readonly string[]): boolean {
    return semaphore.handOut(({ ticket }) => {
      const grant = semaphore.grantOf(ticket);
      if (!grant || asking.includes(ticket)) return;
      const process = processOf(ticket);
      setImmediate(() => this.listeners.get(process)?.onGrant(ticket, grant));
    });
  }

  private keep(key: string, semaphore: MemorySemaphore): void {
    this.semaphores.set(key, semaphore, semaphore.lastEnd + MEMORY);
  }
}

function outlookOf({ nextEnd, lastToken }: MemorySemaphore): SemaphoreOutlook {
  return { nextEnd, lastToken };
}

/** One semaphore. */
class MemorySemaphore {
  permits = 0;
  readonly queue: Waiter[] = [];
  lastToken = 0;
  private readonly held = new Map<string, Held>();

  get taken(): number {
    this.purge();
    let taken = 0;
    for (const { count } of this.held.values()) taken += count;
    return taken;
  }

  grantOf(ticket: string): PermitsGranted | undefined {
    this.purge();
    const held = this.held.get(ticket);
    if (!held) return undefined;
    return {
      status: 'granted',
      fencingToken: held.fencingToken,
      tokens: TOKENS,
      remaining: Math.floor(held.endsAt - performance.now()),
    };
  }

  hold({ ticket, count }: Waiter, lease: number): void {
    const fencingToken = Math.max(this.lastToken + 1, Date.now() * 1_000);
    this.lastToken = fencingToken + TOKENS - 1;
    this.held.set(ticket, { count, endsAt: performance.now() + lease, fencingToken });
  }

  renew(ticket: string, ttl: number): number | undefined {
    this.purge();
    const held = this.held.get(ticket);
    if (!held) return undefined;
    held.endsAt = Math.max(held.endsAt, performance.now() + ttl);
    return Math.floor(held.endsAt - performance.now());
  }

  release(ticket: string): boolean {
    this.purge();
    this.leave(ticket);
    return this.held.delete(ticket);
  }

  leave(ticket: string): void {
    const place = this.queue.findIndex((waiter) => waiter.ticket === ticket);
    if (place >= 0) this.queue.splice(place, 1);
  }

  /** Grants free permits to the waiters in order. Returns whether one of them waits for more. */
  handOut(granted: (waiter: Waiter) => void): boolean {
    for (const waiter of this.queue.slice()) {
      if (waiter.count > this.permits) continue;
      if (waiter.count > this.permits - this.taken) return true;
      this.leave(waiter.ticket);
      this.hold(waiter, CLAIM);
      granted(waiter);
    }
    return false;
  }

  get nextEnd(): number {
    const ends = Array.from(this.held.values(), ({ endsAt }) => endsAt);
    return Math.max(0, Math.min(...ends) - performance.now());
  }

  /** When the last lease ends. */
  get lastEnd(): number {
    return Math.max(0, ...Array.from(this.held.values(), ({ endsAt }) => endsAt - performance.now()));
  }

  private purge(): void {
    const now = performance.now();
    for (const [ticket, { endsAt }] of this.held) if (endsAt <= now) this.held.delete(ticket);
  }
}

interface Held {
  readonly count: number;
  endsAt: number;
  readonly fencingToken: number;
}

type Waiter = Pick<PermitRequest, 'ticket' | 'count'>;
