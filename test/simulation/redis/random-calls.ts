// Random calls of everything that the library does at a Redis, and of other clients on the same keys.

import { Redis } from 'ioredis';
import { redis } from '../../../lib/backends/redis/redis-backend.js';
import { redlock } from '../../../lib/backends/redlock/index.js';
import type { CacheStore } from '../../../lib/contracts/cache-store.js';
import type { LockBackend, LockStore, ModuleContext } from '../../../lib/contracts/lock-backend.js';
import type { PrimitiveStores } from '../../../lib/contracts/primitive-stores.js';
import type { ComparedRedis } from './compared-redis.js';
import type { Random } from './random.js';

const NAMES = ['a', 'b'];
const PROCESSES = ['p', 'q', 'r'];
const LIMITS = [
  { id: 'second', interval: 250, capacity: 1_000 },
  { id: 'minute', interval: 12_000, capacity: 60_000 },
];

type Call = () => unknown;

/** The parts of one process. */
interface Process {
  readonly name: string;
  readonly client: Redis;
  readonly backend: LockBackend;
  readonly store: LockStore;
  readonly primitives: PrimitiveStores;
  readonly cache: CacheStore;
}

/** A few processes at one Redis. */
export class RandomCalls {
  private readonly processes: readonly Process[];
  private readonly nodes: LockBackend;
  private readonly quorum: LockStore;
  private readonly quorumClient: Redis;
  private readonly tickets: string[] = [];
  private readonly permits: { ticket: string; count: number }[] = [];
  private readonly readers = new Set<string>();
  private serial = 0;

  constructor(
    private readonly compared: ComparedRedis,
    private readonly random: Random,
  ) {
    this.processes = PROCESSES.map((name) => this.process(name));
    this.quorumClient = this.client();
    this.nodes = redlock([this.quorumClient], { anyCount: true, restartDelay: false, nodeTimeout: 60_000 });
    this.quorum = this.nodes.open(contextOf('quorum', 'quorum'));
  }

  async open(): Promise<void> {
    await Promise.all([
      ...this.processes.flatMap(({ name, store, cache }) => [store.start?.(), cache.start?.(contextOf(name))]),
      this.quorum.start?.(),
    ]);
    for (const { name, primitives, cache } of this.processes) {
      primitives.semaphores.listen({ process: name, onGrant: () => {}, onConnected: () => {} });
      primitives.latches.listen({ process: name, onOpen: () => {}, onConnected: () => {} });
      cache.listen(CACHE_LISTENER);
    }
    this.processes[0]?.cache.track?.(TRACKER);
  }

  async close(): Promise<void> {
    for (const { backend, primitives, cache, client } of this.processes) {
      cache.close();
      await primitives.close();
      await backend.close();
      client.disconnect();
    }
    await this.nodes.close();
    this.quorumClient.disconnect();
  }

  /** A few calls in one turn, which the library may send together. Resolves when they have ended, however they do. */
  async next(): Promise<void> {
    const { random, compared } = this;
    if (random.chance(0.3)) await compared.pass(random.exponential(random.chance(0.1) ? 3e6 : 1.5e5));
    if (random.chance(0.02)) await compared.fill(random.chance(0.5));
    const calls = 1 + random.below(random.pick([1, 4, 8]));
    const kinds = [this.lockCall, this.lockCall, this.primitiveCall, this.cacheCall, this.quorumCall, this.foreignCall];
    const kind = random.pick(kinds);
    const pending = Array.from({ length: calls }, () => random.pick(random.chance(0.8) ? [kind] : kinds).call(this));
    await Promise.all(pending.map((call) => ended(call)));
  }

  private client(): Redis {
    const client = new Redis({ ...this.compared.options, protocol: this.compared.protocol, replyMapping: 'legacy' });
    client.on('error', () => {});
    return client;
  }

  private process(name: string): Process {
    const client = this.client();
    const backend = redis(client) as ReturnType<typeof redis> & {
      openPrimitiveStores(prefix: string | undefined): PrimitiveStores;
      openCacheStore(prefix: string | undefined): CacheStore;
    };
    return {
      name,
      client,
      backend,
      store: backend.open(contextOf(name)),
      primitives: backend.openPrimitiveStores(undefined),
      cache: backend.openCacheStore(undefined),
    };
  }

  private ms(): number {
    return 1 + Math.floor(this.random.exponential(800));
  }

  private freshTicket(): string {
    const reads = this.random.chance(0.3);
    const ticket = `${this.random.pick(PROCESSES)}:${++this.serial}`;
    if (reads) this.readers.add(ticket);
    this.tickets.push(ticket);
    return ticket;
  }

  private askedBy(ticket: string) {
    return { ticket, mode: this.readers.has(ticket) ? 'read' : 'write' } as const;
  }

  private ticket(): string {
    if (this.tickets.length === 0 || this.random.chance(0.4)) return this.freshTicket();
    return this.random.pick(this.tickets.slice(-6));
  }

  private names(): string[] {
    return this.random.pick([NAMES, NAMES.toReversed()]);
  }

  private lockCall(): Call {
    const { random } = this;
    const { store } = random.pick(this.processes);
    const { queue } = store;
    const [name, names, ticket, ttl] = [random.pick(NAMES), this.names(), this.ticket(), this.ms()];
    const claim = random.chance(0.8) ? this.ms() : undefined;
    const least = random.chance(0.7) ? 0 : this.compared.micros + random.below(5e6);
    return random.pick<Call>([
      () => queue?.enqueue({ name, ...this.askedBy(ticket), ttl, claim }),
      () => queue?.enqueue({ name, ...this.askedBy(this.freshTicket()), ttl, claim }),
      () => queue?.enqueue({ name, ...this.askedBy(this.freshTicket()), ttl, claim: 1_000 }),
      () => queue?.beat({ name, ticket, ttl }),
      () => queue?.beat({ name, ticket: random.pick(this.tickets.slice(-12)), ttl }),
      () => store.release({ name, ticket }),
      () => store.release({ name, ticket: random.pick(this.tickets.slice(-3)) }),
      () => queue?.requeue({ name, ticket, again: this.freshTicket(), claim: ttl }),
      () =>
        Promise.all(
          store.renew([
            { name, ticket, ttl },
            { name: random.pick(NAMES), ticket: this.ticket(), ttl: this.ms() },
          ]),
        ),
      () => store.acquire({ name, ...this.askedBy(ticket), ttl, leastToken: least }),
      () => store.acquireSeveral?.({ names, ...this.askedBy(ticket), ttl, leastToken: least }),
      () => store.mint({ name, ticket, leastToken: least }),
      () => store.keep?.({ name, ticket, rest: this.ms() }),
      () => store.downgrade?.({ name, ticket, ttl }),
      () => store.inspect({ name }),
      () => random.chance(0.3) && store.forceRelease?.({ name }),
      () => store.label?.('ä label', random.chance(0.3) ? 0 : ttl),
      () => store.list?.({ pattern: random.pick(['*', 'a*', '[ab]']), cursor: '', limit: 10 }),
      () => queue?.listen(),
      () => queue?.listen(),
      () => store.stop?.(),
    ]);
  }

  private permit(): { ticket: string; count: number } {
    if (this.permits.length > 0 && this.random.chance(0.6)) return this.random.pick(this.permits.slice(-5));
    const count = this.random.pick([1, 1, 2, 3]);
    const permit = { ticket: `${this.random.pick(PROCESSES)}:${++this.serial}:${count}`, count };
    this.permits.push(permit);
    return permit;
  }

  private primitiveCall(): Call {
    const { random } = this;
    const { primitives, name: process } = random.pick(this.processes);
    const { semaphores, latches, results, rateLimits, runs } = primitives;
    const [name, permit, ttl] = [random.pick(NAMES), this.permit(), this.ms()];
    const token = this.compared.micros + random.below(5);
    const permits = random.chance(0.9) ? 3 : 2 + random.below(3);
    const record = { state: random.pick(['value', 'error', 'running'] as const), token, attempt: 1, fingerprint: 'ab' };
    const limits = random.chance(0.5) ? LIMITS : LIMITS.slice(0, 1);
    const run = { name, token, by: process, atMostFor: ttl };
    return random.pick<Call>([
      () => semaphores.acquire({ name, ...permit, permits, ttl, queues: random.chance(0.8) }),
      () => semaphores.acquire({ name, ...permit, permits, ttl, queues: true }),
      () => semaphores.acquire({ name, ...permit, permits, ttl, queues: true }),
      () => semaphores.renew({ name, ...permit, ttl }),
      () => semaphores.release({ name, ...permit }),
      () => semaphores.release({ name, ...permit }),
      () => semaphores.beat({ name, process, permits, waiters: this.permits.slice(-4) }),
      () => semaphores.use(name),
      () => latches.define({ name, count: 1 + random.below(3), ttl }),
      () => latches.arrive({ name, arrival: `arrival ${random.below(5)}` }),
      () => latches.look(name, random.chance(0.5) ? process : undefined),
      () => results.begin({ key: name, token, fingerprint: random.pick(['ab', 'cd', '']), ttl }),
      () =>
        results.keep({ key: name, record: { ...record, payload: 'kept' }, ttl, evenIfForgotten: random.chance(0.5) }),
      () => results.forget({ key: name, token }),
      () => results.read(name),
      () => rateLimits.take({ key: name, limits, least: 1, most: 1 + random.below(3) }),
      () => rateLimits.take({ key: name, limits, least: 1, most: 1 }),
      () => rateLimits.peek({ key: name, limits }),
      () => rateLimits.hit({ key: name, window: ttl, limit: 2, block: random.pick([0, 500]) }),
      () => random.chance(0.3) && rateLimits.reset({ key: name, limits }),
      () => runs.begin(run),
      () => runs.end({ ...run, took: 1.5, succeeded: random.chance(0.5) }),
      () => runs.last(name),
    ]);
  }

  private cacheCall(): Call {
    const { random } = this;
    const { cache } = random.pick(this.processes);
    const [key, ttl, token] = [random.pick(NAMES), this.ms(), `token ${random.below(4)}`];
    const data = random.pick([stored(this.compared.micros), Buffer.from(`\u0001@${random.below(9)}\nä`), 'text']);
    const members = Array.from({ length: 1 + random.below(3) }, () => random.pick(['x', 'y', 'z', 'ü']));
    const positions = Array.from({ length: 3 }, () => random.below(200));
    const tags = random.chance(0.7) ? [random.pick(['t', 'u'])] : ['t', 'u'];
    const { sets, expiringSets, bits, deletions } = cache;
    return random.pick<Call>([
      () => cache.read(key),
      () => cache.lease({ key, token, lease: ttl, refresh: random.chance(0.3), waits: random.chance(0.5) }),
      () => cache.lease({ key, token, lease: ttl, refresh: true, seen: data, waits: true }),
      () => cache.readOrLease?.({ key, token, lease: ttl, waits: random.chance(0.5) }),
      () => cache.readOrLease?.({ key, token, lease: ttl, waits: random.chance(0.5) }),
      () => cache.commit({ key, token, data, ttl }),
      () => cache.commit({ key, token, data, ttl }),
      () => cache.renew({ key, token, lease: ttl }),
      () => cache.release({ key, token, outdated: random.chance(0.3) }),
      () => cache.invalidate({ key }),
      () => cache.invalidate({ key, barrier: { token, ttl } }),
      () => cache.invalidate({ key, lift: token, staleSince: Math.floor(this.compared.micros / 1_000) }),
      () => cache.renewBarrier({ key, token, ttl }),
      () => cache.take(key),
      () => cache.set({ key, data, ttl, ifAbsent: random.chance(0.3) }),
      () => cache.increment({ key: 'count', by: random.below(5) - 2, ttl }),
      () => cache.expire({ key, ttl }),
      () => cache.ttl(key),
      () => cache.inspect(key),
      () => cache.beginTags(tags, ttl),
      () => cache.readTags(tags),
      () => cache.lastTagInvalidation(),
      () => cache.invalidateTag(random.pick(['t', 'u']), random.chance(0.3)),
      () => random.chance(0.2) && cache.deleteMatching({ match: { prefix: random.pick(NAMES) }, batch: 5 }),
      () => sets.add('s', members, random.chance(0.3) ? Infinity : ttl),
      () => sets.remove('s', members),
      () => sets.has('s', 'x'),
      () => sets.members('s'),
      () => expiringSets.add('e', members, ttl),
      () => expiringSets.remove('e', members),
      () => expiringSets.has('e', 'x'),
      () => expiringSets.members('e'),
      () => expiringSets.size('e'),
      () => bits.add({ key: 'bits', positions, ttl }),
      () => bits.has({ key: 'bits', lists: [positions, positions.slice(1)], ttl }),
      () => bits.beginRebuild({ key: 'bits', token, size: 200, lease: ttl }),
      () => bits.addToRebuild({ key: 'bits', token, positions, lease: ttl }),
      () => bits.finishRebuild({ key: 'bits', token, ttl }),
      () => bits.dropRebuild({ key: 'bits', token }),
      () => random.chance(0.2) && bits.clear('bits'),
      () => deletions.schedule(members, ttl),
      () => deletions.claim(2, ttl),
      () => deletions.renew(members, ttl),
      () => deletions.done(members),
    ]);
  }

  private quorumCall(): Call {
    const { random, quorum } = this;
    const [name, names, ttl] = [random.pick(NAMES), this.names(), this.ms()];
    const ticket = this.ticket();
    return random.pick<Call>([
      () => quorum.acquire({ name, ticket, ttl, waits: random.chance(0.7) }),
      () => quorum.acquireSeveral?.({ names, ticket, ttl }),
      () => Promise.all(quorum.renew([{ name, ticket, ttl }])),
      () => quorum.release({ name, ticket, again: this.freshTicket() }),
      () => quorum.release({ name, ticket }),
      () => quorum.mint({ name, ticket, leastToken: 0 }),
      () => quorum.keep?.({ name, ticket, rest: this.ms() }),
      () => quorum.inspect({ name }),
      () => random.chance(0.3) && quorum.forceRelease?.({ name }),
    ]);
  }

  /** What other clients do, and operators. */
  private foreignCall(): Call {
    const { random } = this;
    const { client } = random.pick(this.processes);
    const keys = [...this.compared.model.data.keys()];
    const key = keys.length === 0 ? 'lock:{a}' : random.pick(keys);
    const ms = String(this.ms());
    const type = random.pick([
      ['SET', key, 'foreign', 'PX', ms],
      ['RPUSH', key, 'foreign', 'foreign:1'],
      ['HSET', key, 'foreign', '1:2:3'],
      ['ZADD', key, '1.5', 'foreign'],
      ['SADD', key, 'foreign'],
    ]);
    const [first = '', ...args] = random.pick([
      ['DEL', key],
      ['DEL', key],
      ['PERSIST', key],
      ['PEXPIRE', key, ms],
      ['PTTL', key],
      ['TYPE', key],
      ['SET', key, 'foreign', 'NX', 'PX', ms],
      ['SET', 'lock:{a}', `foreign:${random.below(3)}`, 'NX', 'PX', ms],
      ['GETRANGE', key, '-3', '-1'],
      ['ZRANGE', key, '0', '-1', 'WITHSCORES'],
      ['HGETALL', key],
      ['KEYS', '*[{]a}*'],
      type,
      ['SCRIPT', 'FLUSH'],
    ]);
    return () => client.call(first, ...args);
  }
}

function stored(micros: number): Buffer {
  const time = Math.floor(micros / 1_000).toString(36);
  return Buffer.concat([Buffer.from([1, 64]), Buffer.from(`${time}\n{"value":"ä"}`)]);
}

/** Whatever the call answers; an error of the server is an answer as well. */
async function ended(call: Call): Promise<void> {
  try {
    await call();
  } catch {
    // The comparison has seen it.
  }
}

function contextOf(process: string, prefix?: string): ModuleContext {
  const nothing = () => {};
  const lines = { report: nothing, message: nothing, interrupted: nothing, reconnected: nothing };
  return { prefix, process, commandTimeout: 60_000, lost: nothing, connected: nothing, ...lines };
}

const CACHE_LISTENER = {
  onInvalidated: () => {},
  onLoadEnded: () => {},
  onTagInvalidated: () => {},
  onPrefixInvalidated: () => {},
  onDeletionScheduled: () => {},
  onDisconnected: () => {},
  onConnected: () => {},
};

const TRACKER = { onChanged: () => {}, onAllChanged: () => {}, onTracked: () => {}, onUntracked: () => {} };
