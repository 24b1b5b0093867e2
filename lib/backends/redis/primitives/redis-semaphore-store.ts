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
} from '../../../contracts/primitive-stores.js';
import type { Pending } from '../../../contracts/store.js';
import { processOf } from '../../../contracts/lock-requests.js';
import { mastersOf } from '../connection/redis-client.js';
import type { RedisLink } from '../connection/redis-link.js';
import { leaseOf, type RedisInteger } from '../connection/redis-script.js';
import { ScriptBatch } from '../connection/script-batch.js';
import { primitiveChannels, primitiveKey } from './primitive-key.js';
import type { RedisPrimitiveChannel } from './redis-primitive-channel.js';
import { CLAIM, MEMORY, semaphoreScript, TOKENS } from './semaphore.lua.js';

/** Semaphores on Redis: four keys for each, described at `semaphoreScript`. */
export class RedisSemaphoreStore implements SemaphoreStore {
  /** Of permits that are taken and given back. */
  private readonly exchanges: ScriptBatch;
  private readonly renewals: ScriptBatch;
  private readonly beats: ScriptBatch;
  private readonly uses: ScriptBatch;
  private readonly listeners = new Map<string, SemaphoreListener>();
  /** See `LockKeys.publishing`. */
  private readonly publishing: string;
  private renewing = false;
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
    const { name, permits, ttl, queues, leastToken = 0 } = request;
    const args = [memberOf(request), queues ? QUEUE : TRY, permits, ttl, leastToken];
    return this.exchanges.run(this.publishing, this.keysOf(name), args, (reply) => {
      const [granted, ...numbers] = reply as RedisInteger[];
      if (Number(granted) === 0) return { status: 'busy', nextEnd: leaseOf(numbers[0]), lastToken: Number(numbers[1]) };
      const [fencingToken, remaining] = [Number(numbers[0]), Number(numbers[1])];
      if (Number.isSafeInteger(fencingToken) && Number.isInteger(remaining)) {
        return { status: 'granted', fencingToken, tokens: TOKENS, remaining };
      }
      throw new Error(`Redis answered ${numbers.join(' ')}, which is no fencing token and no lease`);
    });
  }

  renew(request: RenewPermitsRequest): Pending<number | undefined> {
    const args = [memberOf(request), request.ttl];
    this.sendRenewalsNow();
    return this.renewals.run(this.publishing, this.keysOf(request.name), args, (reply) => {
      const remaining = Number(reply);
      return remaining < 0 ? undefined : remaining;
    });
  }

  /** The server is to know the script before the first claim: the process may have no time to send it again. */
  private prepareRenewals(): void {
    for (const node of mastersOf(this.link.client)) {
      node.eval(RENEW_PERMITS.lua, 0, this.publishing, '').catch(() => {});
    }
  }

  /** Not at the end of this turn of the event loop: what the caller runs next may block it. */
  private sendRenewalsNow(): void {
    if (this.renewing) return;
    this.renewing = true;
    queueMicrotask(() => {
      this.renewing = false;
      this.renewals.sendGathered();
    });
  }

  release(request: PermitRequest): Pending<PermitReleaseAnswer> {
    const { scripts } = this.link;
    const { disconnects } = scripts;
    const args = [memberOf(request), GIVE_BACK, 0, 0, 0];
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
    this.prepareRenewals();
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
    const listener = this.listeners.get(processOf(ticket));
    listener?.onGrant(ticket, { fencingToken: Number(token), tokens: Number(tokens), remaining: Number(claim) });
  }

  /** The same list for one call after the other: they share its keys. */
  private keysOf(name: string): readonly string[] {
    if (name !== this.lastName) {
      const key = primitiveKey('semaphore', this.prefix, name);
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

/** What a call wants. */
const [TRY, QUEUE, GIVE_BACK] = [0, 1, 2];

/**
 * Takes permits and gives permits back: one script for both, so that one run serves all calls of a turn of the event
 * loop.
 *
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key, the ticket, and 0 to take permits or nothing, 1 to take them or to queue, 2 to give them back; then
 * for those that take them the number of permits of the semaphore, the lease in ms for a grant at once, and the least
 * fencing token: that of every later grant is not below it either.
 *
 * Takes permits if enough are free and nobody waits for them. Otherwise serves the queue and, where asked to, puts the
 * ticket at its end. Returns {1, first fencing token, ms left} for a grant, or {0, ms until the next lease ends or -1,
 * last fencing token}. A ticket that has permits was granted them by an earlier copy of this request or in the queue,
 * and is granted them again. A ticket in the queue keeps its place. The number of permits of the last call counts for
 * all.
 *
 * Gives permits back, and grants them to those who wait. A ticket that waits leaves the queue. Returns a list: 1 if the
 * ticket had permits whose lease had not ended, otherwise 0; then the tickets of the same process that were granted
 * permits by it, each with the first of its fencing tokens. Other processes are sent a message.
 */
export const EXCHANGE_PERMITS = semaphoreScript(
  `
  local ticket, wanted = ARGV[arg], ARGV[arg + 1]
  if wanted == '${GIVE_BACK}' then
    local live = take_back(s, ticket)
    if not live then leave(s, ticket) end
    local answer = {live and 1 or 0}
    -- pcall: what fails here must not fail the release, as in a Cluster that moves the slot of the last permit.
    if not pcall(hand_out, s, {}, ticket, answer) then
      -- What it had read or written may not be true.
      s.purged, s.taken, s.first, s.last, s.limit, s.beats = false, false, false, false, false, {}
    end
    return answer
  end
  local limit, ttl = tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  local count, last, blocked = count_of(ticket), last_of(s), false
  remember(s)
  local least = tonumber(ARGV[arg + 4])
  if least > s.token + 1 then raise(s, least) end
  local free = limit - taken(s)
  if last[1] or count > free then
    local left = left_of(s, ticket)
    if left then return granted(s, left) end
    if last[1] and free > 0 then
      if s.limit ~= limit then set_limit(s, limit) end
      if redis.call('ZSCORE', s.queue, ticket) then touch(s, process_of(ticket)) end
      local rest
      rest, blocked = hand_out(s, {[ticket] = true})
      free = rest or free
      left = left_of(s, ticket)
      if left then return granted(s, left) end
    end
  end
  if s.limit ~= limit then set_limit(s, limit) end
  if not blocked and count <= free then
    if last[1] then leave(s, ticket) end
    -- An earlier copy may have been granted a claim that lasts longer, and the message of it may have arrived.
    local left = ttl < ${CLAIM} and left_of(s, ticket)
    if left and left > ttl then return granted(s, left) end
    return {1, hold(s, ticket, count, ttl), ttl}
  end
  if wanted == '${QUEUE}' then enqueue(s, ticket) end
  return {0, next_end(s), s.token}
`,
  5,
);

/**
 * Makes the lease of permits last for at least `ttl` from now, if the ticket still has them. Never shortens a lease,
 * and never brings back permits that are gone.
 *
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key, the ticket and the ttl in ms.
 * Returns for each call the ms left, or -1 if the ticket has no permits any more.
 */
export const RENEW_PERMITS = semaphoreScript(
  `
  local ticket, ttl = ARGV[arg], tonumber(ARGV[arg + 1])
  local left = left_of(s, ticket)
  if not left then return -1 end
  if left >= ttl then return left end
  -- A write that takes no memory: after it, Redis refuses none to the rest, and a full server loses no permits.
  redis.call('ZREMRANGEBYSCORE', s.permits, '-inf', now_text)
  with_members('ZADD', s, ticket, count_of(ticket), now + ttl)
  remember(s)
  last_for(s, ttl + ${MEMORY})
  return ttl
`,
  2,
);

/**
 * The heartbeat of a process with waiters: grants permits whose leases have ended, and answers what became of its
 * tickets, whose messages may have been lost. Never queues a ticket.
 *
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key, the process, the number of permits if none is stored, and the tickets, separated by spaces.
 * Returns for each call the ms until the next lease ends or -1, the last fencing token, then two numbers for each
 * ticket: the ms left of its grant, 0 if it waits, -1 if it is gone; and the fencing token of its grant, otherwise 0.
 */
const SEMAPHORE_BEAT = semaphoreScript(
  `
  remember(s)
  if s.limit == 0 then set_limit(s, tonumber(ARGV[arg + 1])) end
  local asking = {}
  for ticket in string.gmatch(ARGV[arg + 2], '%S+') do asking[ticket] = true end
  touch(s, ARGV[arg])
  hand_out(s, asking)
  local answer = {next_end(s), 0}
  for ticket in string.gmatch(ARGV[arg + 2], '%S+') do
    local left = left_of(s, ticket)
    answer[#answer + 1] = left or (redis.call('ZSCORE', s.queue, ticket) and 0 or -1)
    answer[#answer + 1] = left and mint(s, left) or 0
  end
  answer[2] = s.token
  return answer
`,
  3,
);

/**
 * KEYS, for each semaphore: permits, queue, processes, state. ARGV: 1 how to publish; then for each call the index of
 * its first key.
 * Returns for each call the number of permits of the last call, or 0 if none is stored, and how many are taken.
 */
const SEMAPHORE_USE = semaphoreScript(
  `
  remember(s)
  return {whole(s.limit), redis.call('ZCOUNT', s.permits, '(' .. now_text, '+inf')}`,
  0,
);
