import type { WaitingTicket } from '../contracts/lock-requests.js';
import { isLasting } from '../contracts/store.js';
import { messageOf } from '../errors/limited-log.js';
import type { HoldTaker } from './hold/hold-taker.js';
import type { ListedLock, LockInfo, LockPage, LockWaiter } from './hold/lock.js';
import type { LockBackends } from './line/lock-backends.js';
import type { QueueingBackend } from './line/named-backend.js';
import { listSettings, type LockListOptions } from './options/list-options.js';

/** How many locks of a page are asked for at once: the store serves other clients in between. */
const AT_ONCE = 10;

/** Says who holds locks, and who waits for them. */
export class LockInspection {
  constructor(
    private readonly backends: LockBackends,
    private readonly taker: HoldTaker,
  ) {}

  async inspect(backend: QueueingBackend, name: string): Promise<LockInfo | null> {
    const found = await backend.calls.inspect(name);
    if (!found) return null;
    const { waiters, ...state } = found;
    const elsewhere = Math.max(0, state.waiting - backend.contenders.queuedHere(name));
    const waiting = elsewhere + this.taker.waitingFor(backend, name);
    return { ...state, waiting, ...(waiters && { waiters: waiters.map(waiterOf) }) };
  }

  async list(pattern: string, options: LockListOptions): Promise<LockPage> {
    const { backend: named, cursor, limit } = listSettings(pattern, options);
    const backend = this.backends.ofCall(named);
    const page = await backend.calls.list({ pattern, cursor, limit });
    const locks: ListedLock[] = [];
    for (let first = 0; first < page.names.length; first += AT_ONCE) {
      const names = page.names.slice(first, first + AT_ONCE);
      const found = await Promise.all(names.map((name) => this.listed(backend, name)));
      for (const lock of found) if (lock) locks.push(lock);
    }
    return { locks, cursor: page.cursor === '' ? undefined : page.cursor };
  }

  /** One name that cannot be read has a row with its error: the others are listed. */
  private async listed(backend: QueueingBackend, key: string): Promise<ListedLock | undefined> {
    try {
      const info = await this.inspect(backend, key);
      return info ? { key, ...info } : undefined;
    } catch (error) {
      if (!isLasting(error, { ofKey: true })) throw error;
      return { key, error: messageOf(error), owner: '', ttl: 0, fencingToken: null, waiting: 0 };
    }
  }

  /** The holders of the names at the backend of calls that name none, as text for an error. */
  async describe(names: readonly string[]): Promise<string> {
    const backend = this.backends.ofCall(undefined);
    const holders = await Promise.all(names.map((name) => this.describeOne(backend, name)));
    return holders.join(', ');
  }

  private async describeOne(backend: QueueingBackend, name: string): Promise<string> {
    try {
      const info = await this.inspect(backend, name);
      return info
        ? `"${name}" is held by ${info.owner}${info.label === undefined ? '' : ` (${info.label})`}`
        : `nobody holds "${name}"`;
    } catch {
      return `who holds "${name}" is unknown`;
    }
  }
}

function waiterOf({ ticket, mode = 'write', ...label }: WaitingTicket): LockWaiter {
  return { owner: ticket, ...label, mode };
}
