import type { Pending } from '../../../../contracts/pending.js';
import type {
  AcquirePermitsAnswer,
  AcquirePermitsRequest,
  PermitReleaseAnswer,
  PermitRequest,
  RenewPermitsRequest,
  SemaphoreBeatAnswer,
  SemaphoreBeatRequest,
  SemaphoreListener,
  SemaphoreStore,
  SemaphoreUse,
  WaiterState,
} from '../../../../contracts/primitives/semaphore-store.js';
import type { RedisLink } from '../../redis-link.js';
import { leaseOf, type RedisInteger } from '../../scripting/redis-replies.js';
import { ScriptBatch } from '../../scripting/script-batch.js';
import { primitiveChannels, primitiveKey } from '../primitive-key.js';
import type { RedisPrimitiveChannel } from '../redis-primitive-channel.js';
import { SEMAPHORE_BEAT } from './beat.lua.js';
import { EXCHANGE_PERMITS, GIVE_BACK, QUEUE, TRY } from './exchange.lua.js';
import { RENEW_PERMITS } from './renew.lua.js';
import { CLAIM, TOKENS } from './semaphore-functions.lua.js';
import { SEMAPHORE_USE } from './use.lua.js';

/** Semaphores on Redis: four keys for each, described at `semaphoreScript`. */
export class RedisSemaphoreStore implements SemaphoreStore {
  /** Of permits that are taken and given back. */
  private readonly exchanges: ScriptBatch;
  private readonly renewals: ScriptBatch;
  private readonly beats: ScriptBatch;
  private readonly uses: ScriptBatch;
  private readonly listeners = new Map<string, SemaphoreListener>();
  /** See `publishArgument`. */
  private readonly publishing: string;
  private lastName: string | undefined;
  private lastKeys: readonly string[] = [];

  constructor(
    private readonly link: RedisLink,
    private readonly prefix: string | undefined,
    private readonly channel: RedisPrimitiveChannel,
  ) {
    const { scripts, client } = link;
    this.exchanges = new ScriptBatch(scripts, EXCHANGE_PERMITS, 'numbered');
    this.renewals = new ScriptBatch(scripts, RENEW_PERMITS, 'numbered');
    this.beats = new ScriptBatch(scripts, SEMAPHORE_BEAT, 'numbered');
    this.uses = new ScriptBatch(scripts, SEMAPHORE_USE, 'numbered');
    this.publishing = `${client.isCluster ? 0 : 1}${primitiveChannels(prefix)}`;
  }

  acquire(request: AcquirePermitsRequest): Pending<AcquirePermitsAnswer> {
    const { name, permits, ttl, queues } = request;
    const args = [memberOf(request), queues ? QUEUE : TRY, permits, ttl];
    return this.exchanges.run(this.publishing, this.keysOf(name), args, (reply) => {
      const [granted, ...numbers] = reply as RedisInteger[];
      if (Number(granted) === 0) return { status: 'busy', nextEnd: leaseOf(numbers[0]), lastToken: Number(numbers[1]) };
      return { status: 'granted', fencingToken: Number(numbers[0]), tokens: TOKENS, remaining: Number(numbers[1]) };
    });
  }

  renew(request: RenewPermitsRequest): Pending<number | undefined> {
    const args = [memberOf(request), request.ttl];
    return this.renewals.run(this.publishing, this.keysOf(request.name), args, (reply) => {
      const remaining = Number(reply);
      return remaining < 0 ? undefined : remaining;
    });
  }

  release(request: PermitRequest): Pending<PermitReleaseAnswer> {
    const { scripts } = this.link;
    const { disconnects } = scripts;
    const args = [memberOf(request), GIVE_BACK, 0, 0];
    return this.exchanges.run(this.publishing, this.keysOf(request.name), args, (reply) => {
      const [live, ...granted] = reply as [RedisInteger, ...(string | RedisInteger)[]];
      for (let index = 0; index < granted.length; index += 2) {
        this.grant(String(granted[index]), granted[index + 1], CLAIM, TOKENS);
      }
      return { live: Number(live) === 1, resent: scripts.disconnects !== disconnects };
    });
  }

  beat({ name, process, permits, waiters }: SemaphoreBeatRequest): Pending<SemaphoreBeatAnswer> {
    const args = [process, permits, waiters.map(memberOf).join(' ')];
    return this.beats.run(this.publishing, this.keysOf(name), args, (reply) => {
      const [nextEnd, lastToken, ...numbers] = reply as RedisInteger[];
      const states = waiters.map((_, index) => waiterState(numbers[2 * index], numbers[2 * index + 1]));
      return { states, nextEnd: leaseOf(nextEnd), lastToken: Number(lastToken) };
    });
  }

  use(name: string): Pending<SemaphoreUse> {
    // What this process has given back before counts.
    this.exchanges.sendGathered();
    return this.uses.run(this.publishing, this.keysOf(name), [], (reply) => {
      const [permits, taken] = reply as [RedisInteger, RedisInteger];
      return { permits: Number(permits) || undefined, taken: Number(taken) };
    });
  }

  listen(listener: SemaphoreListener): void {
    this.listeners.set(listener.process, listener);
    this.channel.listen('semaphore', listener.process, {
      onMessage: (text) => {
        // Earlier versions reserve one token, and do not say so.
        const [member = '', token, claim, tokens = 1] = text.split(' ');
        this.grant(member, token, claim, tokens);
      },
      onConnected: () => listener.onConnected(),
    });
  }

  unlisten(process: string): void {
    this.listeners.delete(process);
    this.channel.unlisten(process);
  }

  /** Tells the process of a waiter. */
  private grant(
    member: string,
    token: RedisInteger | undefined,
    claim: RedisInteger | undefined,
    tokens: RedisInteger,
  ): void {
    const ticket = ticketOf(member);
    const listener = this.listeners.get(ticket.slice(0, ticket.lastIndexOf(':')));
    listener?.onGrant(ticket, { fencingToken: Number(token), tokens: Number(tokens), remaining: Number(claim) });
  }

  /** The same list for one call after the other: they share its keys. */
  private keysOf(name: string): readonly string[] {
    if (name !== this.lastName) {
      const key = primitiveKey('semaphore', { prefix: this.prefix, name });
      this.lastKeys = [key, `${key}:queue`, `${key}:processes`, `${key}:state`];
      this.lastName = name;
    }
    return this.lastKeys;
  }
}

/** The ticket as Redis keeps it: with its number of permits. */
function memberOf({ ticket, count }: Pick<PermitRequest, 'ticket' | 'count'>): string {
  return `${ticket}:${count}`;
}

function ticketOf(member: string): string {
  return member.slice(0, member.lastIndexOf(':'));
}

function waiterState(remaining: RedisInteger | undefined, token: RedisInteger | undefined): WaiterState {
  const left = Number(remaining);
  if (left > 0) return { status: 'granted', fencingToken: Number(token), tokens: TOKENS, remaining: left };
  return { status: left === 0 ? 'waiting' : 'gone' };
}
