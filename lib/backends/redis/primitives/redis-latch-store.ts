import type {
  ArrivalRequest,
  DefineLatchRequest,
  LatchListener,
  LatchState,
  LatchStore,
} from '../../../contracts/primitive-stores.js';
import type { Pending } from '../../../contracts/store.js';
import type { RedisLink } from '../connection/redis-link.js';
import { batchOf, type RedisInteger, redisScript, type RedisScript } from '../connection/redis-script.js';
import { ScriptBatch } from '../connection/script-batch.js';
import { primitiveChannels, primitiveKey } from './primitive-key.js';
import type { RedisPrimitiveChannel } from './redis-primitive-channel.js';

/** Count-down latches on Redis: three keys for each, described at `latchScript`. */
export class RedisLatchStore implements LatchStore {
  private readonly definitions: ScriptBatch;
  private readonly arrivals: ScriptBatch;
  private readonly looks: ScriptBatch;
  private readonly channels: string;

  constructor(
    { scripts }: RedisLink,
    private readonly prefix: string | undefined,
    private readonly channel: RedisPrimitiveChannel,
  ) {
    this.definitions = new ScriptBatch(scripts, DEFINE_LATCH);
    this.arrivals = new ScriptBatch(scripts, ARRIVE_AT_LATCH);
    this.looks = new ScriptBatch(scripts, LOOK_AT_LATCH);
    this.channels = primitiveChannels(prefix);
  }

  define({ name, count, ttl }: DefineLatchRequest): Pending<LatchState> {
    return this.definitions.run(this.channels, this.keysOf(name), [count, ttl], (reply) => stateOf(reply) ?? never());
  }

  arrive({ name, arrival }: ArrivalRequest): Pending<LatchState | undefined> {
    return this.arrivals.run(this.channels, this.keysOf(name), [arrival, name], stateOf);
  }

  look(name: string, process = ''): Pending<LatchState | undefined> {
    return this.looks.run(this.channels, this.keysOf(name), [process], stateOf);
  }

  listen(listener: LatchListener): void {
    this.channel.listen('latch', listener.process, {
      onMessage: (name) => listener.onOpen(name),
      onConnected: () => listener.onConnected(),
    });
  }

  unlisten(process: string): void {
    this.channel.unlisten(process);
  }

  private keysOf(name: string): string[] {
    const key = primitiveKey('latch', this.prefix, name);
    return [key, `${key}:arrivals`, `${key}:waiting`];
  }
}

function stateOf(reply: unknown): LatchState | undefined {
  const [count, remaining] = (reply as RedisInteger[]).map(Number) as [number, number];
  return count === 0 ? undefined : { count, remaining };
}

function never(): never {
  throw new Error('Redis answered no count for a latch that it has just defined');
}

/** How many keys a latch has: its count, the set of arrivals, and the processes that wait. */
const KEYS = 3;

/**
 * A script over latches: `each` is the text of a Lua function of `l` (see below) and the index of its first argument.
 *
 * The keys of a latch:
 * - count: a hash with `count` and `ttl`. The latch exists while this key does.
 * - arrivals: the set of the ids that arrived, rather than a counter, so that a request sent twice counts once.
 * - waiting: a sorted set of processes, by the time (ms) until which they want a message.
 */
function latchScript(each: string, args: number): RedisScript {
  return redisScript(`
local each = function(l, arg)
${each}
end
local of_keys = function(key, arg)
  local l = {count_key = KEYS[key], arrivals = KEYS[key + 1], waiting = KEYS[key + 2]}
  local stored = redis.call('HMGET', l.count_key, 'count', 'ttl')
  l.count, l.ttl = tonumber(stored[1] or 0), stored[2]
  l.missing = function() return math.max(0, l.count - redis.call('SCARD', l.arrivals)) end
  return each(l, arg)
end
${batchOf('of_keys', { keys: KEYS, args, shared: 1 })}
`);
}

/**
 * Defines a latch unless there is one.
 *
 * KEYS, for each call: count, arrivals, waiting. ARGV: 1 the text with which channels begin; then for each call the
 * count and the ttl in ms. Returns for each call the count and how many arrivals are missing.
 */
const DEFINE_LATCH = latchScript(
  `
  if l.count == 0 then
    l.count = tonumber(ARGV[arg])
    redis.call('DEL', l.arrivals)
    redis.call('HSET', l.count_key, 'count', ARGV[arg], 'ttl', ARGV[arg + 1])
    redis.call('PEXPIRE', l.count_key, ARGV[arg + 1])
  end
  return {l.count, l.missing()}
`,
  2,
);

/**
 * Notes an arrival, and tells the waiting processes when it was the last one that was missing.
 *
 * KEYS, for each call: count, arrivals, waiting. ARGV: 1 the text with which channels begin; then for each call the id
 * of the arrival and the name of the latch. Returns for each call the count (0 if there is no such latch) and how many
 * arrivals are missing.
 *
 * An open latch takes no further ids, so that it does not grow.
 */
const ARRIVE_AT_LATCH = latchScript(
  `
  if l.count == 0 then return {0, 0} end
  local missing = l.missing()
  if missing > 0 and redis.call('SADD', l.arrivals, ARGV[arg]) == 1 then missing = missing - 1 end
  redis.call('PEXPIRE', l.count_key, l.ttl)
  redis.call('PEXPIRE', l.arrivals, l.ttl)
  if missing == 0 then
    for _, process in ipairs(redis.call('ZRANGE', l.waiting, 0, -1)) do
      -- pcall: without the right to publish no message is sent, and those who wait find the latch open a little later.
      redis.pcall('PUBLISH', ARGV[1] .. process, 'latch ' .. ARGV[arg + 1])
    end
    redis.call('DEL', l.waiting)
  end
  return {l.count, missing}
`,
  2,
);

/** How long (ms) a process gets the message of the opening without asking again: several times its period. */
const INTEREST = 5_000;

/**
 * Reads the state of a latch, and notes a process that wants to be told when it opens.
 *
 * KEYS, for each call: count, arrivals, waiting. ARGV: 1 the text with which channels begin; then for each call the
 * process, or an empty text. Returns for each call the count (0 if there is no such latch) and how many arrivals are
 * missing. A process may wait for a latch that does not exist yet.
 */
const LOOK_AT_LATCH = latchScript(
  `
  local missing = l.missing()
  if ARGV[arg] ~= '' and (l.count == 0 or missing > 0) then
    local time = redis.call('TIME')
    local now = math.floor(time[1] * 1000 + time[2] / 1000)
    redis.call('ZADD', l.waiting, string.format('%.0f', now + ${INTEREST}), ARGV[arg])
    redis.call('ZREMRANGEBYSCORE', l.waiting, '-inf', string.format('%.0f', now))
    redis.call('PEXPIRE', l.waiting, ${INTEREST})
  end
  return {l.count, missing}
`,
  1,
);
