import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  Pending,
  QueueAnswer,
  QueueListener,
  RequeueRequest,
  WaiterRequest,
} from '../../../contracts/lock-backend.js';
import { isReadTicket } from '../../../keys/read-ticket.js';
import { LONGEST_DELAY } from '../../../timing/longest-delay.js';
import type { RedisLink } from '../redis-link.js';
import { channelPrefix, keysOf, publishArgument } from './redis-lock-keys.js';
import { RedisLockChannel } from './redis-lock-channel.js';
import { leaseOf, tokenRange, type RedisInteger } from '../scripting/redis-replies.js';
import { ScriptBatch } from '../scripting/script-batch.js';
import type { ScriptRunner } from '../scripting/script-runner.js';
import type { FencingScripts } from './fencing-scripts.js';
import { RENEW } from './scripts/renew.lua.js';

type Reply = [status: RedisInteger, ...rest: RedisInteger[]];

/** The queue of the Redis backend: one list of tickets for each lock, and one channel for each process. */
export class RedisLockQueue implements LockQueue {
  private channel: RedisLockChannel | undefined;
  private readonly scripts: ScriptRunner;
  private closed = false;
  private readonly enqueues: ScriptBatch;
  private readonly reads: ScriptBatch;

  constructor(
    private readonly link: RedisLink,
    private readonly fencing: FencingScripts,
  ) {
    const { scripts } = link;
    this.scripts = scripts;
    this.enqueues = new ScriptBatch(scripts, fencing.acquireOrEnqueue);
    this.reads = new ScriptBatch(scripts, fencing.readOrEnqueue);
  }

  async listen(listener: QueueListener): Promise<void> {
    if (this.closed) throw new Error('The backend is closed');
    const channels = channelPrefix(listener);
    if (!this.channel && !this.link.client.isCluster) this.prepareRenewals();
    this.channel ??= new RedisLockChannel(this.link, channels);
    await this.channel.listen(channels + listener.process, listener);
  }

  unlisten(listener: Pick<QueueListener, 'prefix' | 'process'>): void {
    this.channel?.unlisten(channelPrefix(listener) + listener.process);
  }

  enqueue(request: EnqueueRequest): Pending<QueueAnswer> {
    const { ticket, ttl, claim, name } = request;
    const args = [ticket, ttl, claim === undefined ? '' : `${claim}:${name}`];
    const batch = isReadTicket(ticket) ? this.reads : this.enqueues;
    return batch.run(this.publishing(request), keysOf(request), args, (reply) =>
      Array.isArray(reply) ? queueAnswer(reply as Reply) : grantedAtOnce(Number(reply), ttl),
    );
  }

  async beat(request: BeatRequest): Promise<QueueAnswer | { status: 'gone' }> {
    const args = [this.publishing(request), request.ticket];
    const reply = (await this.scripts.run(this.fencing.beat, keysOf(request), args)) as Reply;
    return Number(reply[0]) === -1 ? { status: 'gone' } : queueAnswer(reply);
  }

  async requeue(request: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const disconnects = this.scripts.disconnects;
    const { ticket, again, claim, name } = request;
    const args = [this.publishing(request), ticket, again, `${claim}:${name}`];
    const reply = (await this.scripts.run(this.fencing.requeue, keysOf(request), args)) as Reply;
    if (Number(reply[0]) !== -1) return queueAnswer(reply);
    return { status: 'not-owner', resent: this.scripts.disconnects !== disconnects };
  }

  close(): void {
    this.closed = true;
    this.channel?.close();
  }

  private publishing(request: WaiterRequest): string {
    return publishArgument(request, this.link.client);
  }

  /** Loads the script for renewals early: a process that is handed a claim must renew it soon. */
  private prepareRenewals(): void {
    this.scripts.command((client) => client.eval(RENEW.lua, 0)).catch(() => {});
  }
}

/** The name was free and nobody waited for it. */
function grantedAtOnce(token: number, ttl: number): QueueAnswer {
  if (!Number.isSafeInteger(token) || token <= 0)
    throw new Error(`Redis answered ${token}, which is not a fencing token`);
  return { status: 'granted', tokens: { first: token, count: 1 }, remaining: ttl, waiting: 0 };
}

function queueAnswer(reply: Reply): QueueAnswer {
  if (Number(reply[0]) === 1) {
    const [, first, count, pttl, waiting] = reply;
    return {
      status: 'granted',
      tokens: tokenRange([first, count]),
      // A key without an expiry (somebody called PERSIST) is ours until its next renewal.
      remaining: Math.min(leaseOf(pttl), LONGEST_DELAY),
      waiting: Number(waiting),
    };
  }
  const [, unissued, place, pttl, owner, unreached] = reply;
  return {
    status: 'busy',
    unissued: Number(unissued),
    first: Number(place) === 1,
    far: Number(place) === 0,
    unreached: Number(unreached) > 0,
    remaining: leaseOf(pttl),
    owner: String(owner),
  };
}
