import type { LockState, NameRequest, WaitingTicket } from '../../../contracts/lock-backend.js';
import { leaseOf, type RedisInteger } from '../scripting/redis-replies.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import { keysOf, labelKey } from './redis-lock-keys.js';
import { INSPECT } from './scripts/inspect.lua.js';

/** What `INSPECT` returns. */
type Reply = [
  owner?: string,
  ttl?: RedisInteger,
  unissued?: string,
  waiting?: RedisInteger,
  readers?: RedisInteger,
  waiters?: string[],
];

/** Who has a lock and who waits for it, with the labels of their processes. */
export class LockInspection {
  /** Those that are being read: the locks of a page have few holders, and a round trip brings each label once. */
  private readonly labels = new Map<string, Promise<string | null>>();

  constructor(private readonly scripts: ScriptRunner) {}

  async inspect(request: NameRequest): Promise<LockState | null> {
    const reply = (await this.scripts.run(INSPECT, keysOf(request), [])) as Reply;
    const [owner, ttl, unissued, waiting, readers, tickets = []] = reply;
    if (owner === undefined) return null;
    const [label, ...waiters] = await Promise.all([
      Number(readers) > 0 ? null : this.labelOf(request, owner),
      ...tickets.map((ticket) => this.waiterOf(request, ticket)),
    ]);
    return {
      owner,
      ...(Number(readers) > 0 && { readers: Number(readers) }),
      ...(label !== null && { label }),
      ttl: leaseOf(ttl),
      fencingToken: unissued ? Number(unissued) - 1 : null,
      waiting: Number(waiting),
      waiters,
    };
  }

  private async waiterOf(request: NameRequest, ticket: string): Promise<WaitingTicket> {
    const label = await this.labelOf(request, ticket);
    return label === null ? { ticket } : { ticket, label };
  }

  private async labelOf(request: NameRequest, ticket: string): Promise<string | null> {
    const process = /^(.+):\d+$/.exec(ticket)?.[1];
    if (process === undefined) return null;
    const key = labelKey(request, process);
    const known = this.labels.get(key);
    if (known) return known;
    const label = this.scripts.command((client) => client.get(key));
    this.labels.set(key, label);
    try {
      return await label;
    } finally {
      this.labels.delete(key);
    }
  }
}
