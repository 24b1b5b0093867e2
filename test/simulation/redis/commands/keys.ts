// Keys of any type, and strings.

import { createHash } from 'node:crypto';
import type { RedisModel } from '../redis-model.js';
import { ErrorReply, OK, Refused, type Reply, StatusReply } from '../replies.js';
import { type Commands, globToRegExp, notModelled, range, whole } from './command.js';

function remove(redis: RedisModel, keys: readonly string[]): number {
  return keys.reduce((sum, key) => sum + redis.remove(key), 0);
}

function expireAt(redis: RedisModel, key: string, expires: number, options: readonly string[]): number {
  if (options.length > 0) return notModelled(`PEXPIRE with ${options.join(' ')}`);
  const entry = redis.entry(key);
  if (!entry) return 0;
  if (expires <= redis.now) return redis.remove(key);
  entry.expires = expires;
  redis.changed(key);
  return 1;
}

function presentKeys(redis: RedisModel): string[] {
  return [...redis.data].filter(([, entry]) => !redis.isExpired(entry)).map(([key]) => key);
}

/** The place of a key in the order of SCAN: the same as long as it exists, whatever comes and goes beside it. */
function placeOf(key: string): number {
  return 1 + createHash('sha1').update(key, 'latin1').digest().readUInt32LE(0);
}

function scan(redis: RedisModel, [cursor, ...options]: readonly string[]): Reply {
  let [matches, count, type] = [/^/, 10, ''];
  for (let i = 0; i < options.length; i += 2) {
    const [option = '', value = ''] = options.slice(i, i + 2);
    if (option.toLowerCase() === 'match') matches = globToRegExp(value);
    else if (option.toLowerCase() === 'count') count = whole(value);
    else if (option.toLowerCase() === 'type') type = value.toLowerCase();
    else return new ErrorReply('ERR syntax error');
  }
  const from = whole(cursor);
  const left = presentKeys(redis)
    .map((key) => ({ key, place: placeOf(key) }))
    .filter(({ place }) => place >= from)
    .toSorted((one, other) => one.place - other.place);
  const next = left[count]?.place ?? 0;
  const seen = left.filter(({ place }) => next === 0 || place < next).map(({ key }) => key);
  const found = seen.filter((key) => matches.test(key) && (type === '' || redis.data.get(key)?.type === type));
  return [String(next), found];
}

export const KEY_COMMANDS: Commands = {
  exists: (redis, keys) => keys.filter((key) => redis.entry(key)).length,
  del: remove,
  unlink: remove,
  type: (redis, [key = '']) => new StatusReply(redis.entry(key)?.type ?? 'none'),
  keys: (redis, [pattern = '']) => {
    const matches = globToRegExp(pattern);
    return presentKeys(redis).filter((key) => matches.test(key));
  },
  scan,
  pttl: (redis, [key = '']) => {
    const entry = redis.entry(key);
    return entry ? redis.pttl(entry) : -2;
  },
  pexpire: (redis, [key = '', ttl, ...options]) => expireAt(redis, key, redis.now + whole(ttl), options),
  pexpireat: (redis, [key = '', at, ...options]) => expireAt(redis, key, whole(at), options),
  persist: (redis, [key = '']) => {
    const entry = redis.entry(key);
    if (entry?.expires === undefined) return 0;
    entry.expires = undefined;
    redis.changed(key);
    return 1;
  },
  rename: (redis, [from = '', to = '']) => {
    const entry = redis.entry(from);
    if (!entry) return new ErrorReply('ERR no such key');
    redis.data.delete(from);
    redis.data.delete(to);
    redis.data.set(to, entry);
    redis.changed(from);
    redis.changed(to);
    return OK;
  },
};

function increase(redis: RedisModel, key: string, by: number): number {
  const entry = redis.entryOf('string', key);
  const value = whole(entry?.value ?? '0') + by;
  if (!Number.isSafeInteger(value)) return notModelled(`the number ${value}`);
  redis.put(key, String(value), entry?.expires);
  return value;
}

/** The options of SET. */
interface Setting {
  expires: number | undefined;
  condition: 'NX' | 'XX' | undefined;
  get: boolean;
  keepTtl: boolean;
}

function settingOf(redis: RedisModel, options: readonly string[]): Setting {
  const setting: Setting = { expires: undefined, condition: undefined, get: false, keepTtl: false };
  for (let i = 0; i < options.length; i++) {
    const option = options[i]?.toUpperCase();
    if (option === 'PX' || option === 'EX') {
      const ms = whole(options[++i]) * (option === 'EX' ? 1_000 : 1);
      if (ms <= 0) throw new Refused("ERR invalid expire time in 'set' command");
      setting.expires = redis.now + ms;
    } else if (option === 'NX' || option === 'XX') setting.condition = option;
    else if (option === 'GET') setting.get = true;
    else if (option === 'KEEPTTL') setting.keepTtl = true;
    else throw new Refused('ERR syntax error');
  }
  return setting;
}

export const STRING_COMMANDS: Commands = {
  get: (redis, [key = '']) => redis.entryOf('string', key)?.value ?? null,
  mget: (redis, keys) =>
    keys.map((key) => {
      const entry = redis.entry(key);
      return entry?.type === 'string' ? entry.value : null;
    }),
  set: (redis, [key = '', value = '', ...options]) => {
    const { expires, condition, get, keepTtl } = settingOf(redis, options);
    const before = get ? (redis.entryOf('string', key)?.value ?? null) : undefined;
    const present = redis.entry(key);
    if (condition && (present !== undefined) === (condition === 'NX')) return before ?? null;
    redis.put(key, value, keepTtl ? present?.expires : expires);
    return before === undefined ? OK : before;
  },
  incr: (redis, [key = '']) => increase(redis, key, 1),
  incrby: (redis, [key = '', by]) => increase(redis, key, whole(by)),
  strlen: (redis, [key = '']) => redis.entryOf('string', key)?.value.length ?? 0,
  getrange: (redis, [key = '', start, stop]) => {
    const value = redis.entryOf('string', key)?.value ?? '';
    const [from, to] = range(value.length, start, stop);
    return value.slice(from, to);
  },
  getbit: (redis, [key = '', offset]) => {
    const place = bitPlace(offset);
    const byte = redis.entryOf('string', key)?.value.charCodeAt(place >> 3);
    return byte === undefined || Number.isNaN(byte) ? 0 : (byte >> (7 - (place & 7))) & 1;
  },
  setbit: (redis, [key = '', offset, bit]) => {
    const place = bitPlace(offset);
    if (bit !== '0' && bit !== '1') return new ErrorReply('ERR bit is not an integer or out of range');
    const entry = redis.entryOf('string', key);
    const value = (entry?.value ?? '').padEnd((place >> 3) + 1, '\0');
    const byte = value.charCodeAt(place >> 3);
    const mask = 1 << (7 - (place & 7));
    const changed = String.fromCharCode(bit === '1' ? byte | mask : byte & ~mask);
    redis.put(key, value.slice(0, place >> 3) + changed + value.slice((place >> 3) + 1), entry?.expires);
    return byte & mask ? 1 : 0;
  },
};

function bitPlace(offset: string | undefined): number {
  if (offset === undefined || !/^(?:0|[1-9]\d{0,9})$/.test(offset) || Number(offset) >= 2 ** 32) {
    throw new Refused('ERR bit offset is not an integer or out of range');
  }
  return Number(offset);
}
