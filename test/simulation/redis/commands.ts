// The commands of the model.

import { createHash } from 'node:crypto';
import type { Connection, RedisModel } from './redis-model.js';
import { ErrorReply, Refused, type Reply, StatusReply } from './replies.js';

/** A script has no connection. `undefined`: the answers are pushed. */
type Command = (redis: RedisModel, args: readonly string[], connection: Connection | undefined) => Reply | undefined;

export const NOT_IN_SCRIPTS: ReadonlySet<string> = new Set([
  'eval',
  'evalsha',
  'script',
  'subscribe',
  'unsubscribe',
  'hello',
  'client',
]);

const OK = new StatusReply('OK');
const NOT_INTEGER = new ErrorReply('ERR value is not an integer or out of range');
const INFO = `# Server
redis_version:7.0.15
loading:0
maxmemory:0
maxmemory_policy:noeviction
role:master
`.replaceAll('\n', '\r\n');

function whole(text: string | undefined): number {
  if (text === undefined || !/^-?\d+$/.test(text)) throw new Refused(NOT_INTEGER);
  return Number(text);
}

function remove(redis: RedisModel, keys: readonly string[]): number {
  return keys.reduce((sum, key) => sum + redis.remove(key), 0);
}

function runScript(redis: RedisModel, text: string, [count, ...rest]: readonly string[]): Reply {
  const keys = whole(count);
  return redis.runScript(text, rest.slice(0, keys), rest.slice(keys));
}

function addScript(redis: RedisModel, text: string): string {
  const sha1 = createHash('sha1').update(text, 'latin1').digest('hex');
  redis.scripts.set(sha1, text);
  return sha1;
}

const CONNECTION: Record<string, Command> = {
  ping: () => new StatusReply('PONG'),
  hello: (_redis, [version], connection) => {
    if (version !== undefined && version !== '2' && version !== '3') {
      return new ErrorReply('NOPROTO unsupported protocol version');
    }
    if (version && connection) connection.protocol = version === '3' ? 3 : 2;
    const proto = connection?.protocol ?? 2;
    return new Map<string, Reply>(
      Object.entries({ server: 'redis', version: '7.0.15', proto, mode: 'standalone', role: 'master' }),
    );
  },
  client: () => OK,
  select: () => OK,
  readonly: () => OK,
  wait: () => 0,
  acl: () => OK,
  info: () => INFO,
  time: ({ clock }) => clock,
  subscribe: (redis, channels, connection) => {
    if (connection) for (const each of channels) redis.subscribe(connection, each);
    return undefined;
  },
  unsubscribe: (redis, channels, connection) => {
    if (connection) for (const each of channels) redis.unsubscribe(connection, each);
    return undefined;
  },
  publish: (redis, [channel = '', message = '']) => redis.publish(channel, message),
  flushall: (redis) => {
    redis.data.clear();
    return OK;
  },
};

const SCRIPTS: Record<string, Command> = {
  script: (redis, [what, text = '']) => {
    if (what?.toLowerCase() === 'load') return addScript(redis, text);
    if (what?.toLowerCase() === 'flush') redis.scripts.clear();
    return OK;
  },
  eval: (redis, [text = '', ...rest]) => {
    addScript(redis, text);
    return runScript(redis, text, rest);
  },
  evalsha: (redis, [sha1 = '', ...rest]) => {
    const text = redis.scripts.get(sha1.toLowerCase());
    if (text === undefined) return new ErrorReply('NOSCRIPT No matching script. Please use EVAL.');
    return runScript(redis, text, rest);
  },
};

const KEYS: Record<string, Command> = {
  exists: (redis, keys) => keys.filter((key) => redis.entry(key)).length,
  del: remove,
  unlink: remove,
  pttl: (redis, [key = '']) => {
    const entry = redis.entry(key);
    return entry ? redis.pttl(entry) : -2;
  },
  pexpire: (redis, [key = '', ttl]) => {
    const ms = whole(ttl);
    const entry = redis.entry(key);
    if (!entry) return 0;
    if (ms <= 0) redis.remove(key);
    else entry.expires = redis.now + ms;
    return 1;
  },
  persist: (redis, [key = '']) => {
    const entry = redis.entry(key);
    if (entry?.expires === undefined) return 0;
    entry.expires = undefined;
    return 1;
  },
  scan: (redis) => ['0', [...redis.data.keys()].filter((key) => redis.entry(key))],
};

const STRINGS: Record<string, Command> = {
  get: (redis, [key = '']) => redis.entryOf('string', key)?.value ?? null,
  set: (redis, [key = '', value = '', ...options]) => {
    let expires: number | undefined;
    let condition: string | undefined;
    let get = false;
    for (let i = 0; i < options.length; i++) {
      const option = options[i]?.toUpperCase();
      if (option === 'PX' || option === 'EX') {
        const ms = whole(options[++i]) * (option === 'EX' ? 1_000 : 1);
        if (ms <= 0) return new ErrorReply("ERR invalid expire time in 'set' command");
        expires = redis.now + ms;
      } else if (option === 'NX' || option === 'XX') condition = option;
      else if (option === 'GET') get = true;
      else return new ErrorReply('ERR syntax error');
    }
    const before = get ? (redis.entryOf('string', key)?.value ?? null) : undefined;
    if (condition && (redis.entry(key) !== undefined) === (condition === 'NX')) return before ?? null;
    redis.put(key, value, expires);
    return before === undefined ? OK : before;
  },
  incr: (redis, [key = '']) => {
    const entry = redis.entryOf('string', key);
    const value = whole(entry?.value ?? '0') + 1;
    redis.put(key, String(value), entry?.expires);
    return value;
  },
};

const HASHES: Record<string, Command> = {
  hset: (redis, [key = '', ...pairs]) => {
    const { value } = redis.entryFor('hash', key);
    const before = value.size;
    for (let i = 0; i + 1 < pairs.length; i += 2) value.set(pairs[i] ?? '', pairs[i + 1] ?? '');
    return value.size - before;
  },
  hget: (redis, [key = '', field = '']) => redis.entryOf('hash', key)?.value.get(field) ?? null,
  hdel: (redis, [key = '', ...fields]) => {
    const entry = redis.entryOf('hash', key);
    if (!entry) return 0;
    const removed = fields.filter((field) => entry.value.delete(field)).length;
    redis.removeIfEmpty(key, entry);
    return removed;
  },
  hlen: (redis, [key = '']) => redis.entryOf('hash', key)?.value.size ?? 0,
  hexists: (redis, [key = '', field = '']) => Number(redis.entryOf('hash', key)?.value.has(field) ?? false),
};

const LISTS: Record<string, Command> = {
  rpush: (redis, [key = '', ...values]) => redis.entryFor('list', key).value.push(...values),
  llen: (redis, [key = '']) => redis.entryOf('list', key)?.value.length ?? 0,
  lindex: (redis, [key = '', place]) => redis.entryOf('list', key)?.value.at(whole(place)) ?? null,
  linsert: (redis, [key = '', where, pivot = '', value = '']) => {
    const list = redis.entryOf('list', key)?.value;
    if (!list) return 0;
    const place = list.indexOf(pivot);
    if (place < 0) return -1;
    list.splice(where?.toUpperCase() === 'BEFORE' ? place : place + 1, 0, value);
    return list.length;
  },
  lrem: (redis, [key = '', count, value]) => {
    const entry = redis.entryOf('list', key);
    if (!entry) return 0;
    let left = whole(count) || Infinity;
    if (left < 0) throw new Error('LREM from the tail is not modelled');
    const kept = entry.value.filter((each) => each !== value || left-- <= 0);
    const removed = entry.value.length - kept.length;
    entry.value = kept;
    redis.removeIfEmpty(key, entry);
    return removed;
  },
  lpos: (redis, [key = '', value = '', option, most]) => {
    const list = redis.entryOf('list', key)?.value ?? [];
    const limit = option?.toUpperCase() === 'MAXLEN' ? whole(most) : 0;
    const place = (limit > 0 ? list.slice(0, limit) : list).indexOf(value);
    return place < 0 ? null : place;
  },
};

export const COMMANDS: ReadonlyMap<string, Command> = new Map(
  Object.entries({ ...CONNECTION, ...SCRIPTS, ...KEYS, ...STRINGS, ...HASHES, ...LISTS }),
);
