// Hashes, lists and sets.

import { type Commands, notModelled, range, whole } from './command.js';

export const HASH_COMMANDS: Commands = {
  hset: (redis, [key = '', ...pairs]) => {
    const { value } = redis.entryFor('hash', key);
    const before = value.size;
    for (let i = 0; i + 1 < pairs.length; i += 2) value.set(pairs[i] ?? '', pairs[i + 1] ?? '');
    redis.changed(key);
    return value.size - before;
  },
  hget: (redis, [key = '', field = '']) => redis.entryOf('hash', key)?.value.get(field) ?? null,
  hmget: (redis, [key = '', ...fields]) => {
    const hash = redis.entryOf('hash', key)?.value;
    return fields.map((field) => hash?.get(field) ?? null);
  },
  hgetall: (redis, [key = '']) => new Map(redis.entryOf('hash', key)?.value ?? []),
  hdel: (redis, [key = '', ...fields]) => {
    const hash = redis.entryOf('hash', key)?.value;
    const removed = hash ? fields.filter((field) => hash.delete(field)).length : 0;
    if (removed > 0) redis.shrunk(key);
    return removed;
  },
  hlen: (redis, [key = '']) => redis.entryOf('hash', key)?.value.size ?? 0,
  hexists: (redis, [key = '', field = '']) => Number(redis.entryOf('hash', key)?.value.has(field) ?? false),
};

export const LIST_COMMANDS: Commands = {
  rpush: (redis, [key = '', ...values]) => {
    const length = redis.entryFor('list', key).value.push(...values);
    redis.changed(key);
    return length;
  },
  llen: (redis, [key = '']) => redis.entryOf('list', key)?.value.length ?? 0,
  lindex: (redis, [key = '', place]) => {
    const list = redis.entryOf('list', key)?.value;
    return list?.at(whole(place)) ?? null;
  },
  lrange: (redis, [key = '', start, stop]) => {
    const list = redis.entryOf('list', key)?.value ?? [];
    return list.slice(...range(list.length, start, stop));
  },
  linsert: (redis, [key = '', where, pivot = '', value = '']) => {
    const list = redis.entryOf('list', key)?.value;
    if (!list) return 0;
    const place = list.indexOf(pivot);
    if (place < 0) return -1;
    list.splice(where?.toUpperCase() === 'BEFORE' ? place : place + 1, 0, value);
    redis.changed(key);
    return list.length;
  },
  lrem: (redis, [key = '', count, value = '']) => {
    const most = whole(count);
    if (most < 0) return notModelled('LREM from the tail');
    const list = redis.entryOf('list', key)?.value ?? [];
    let removed = 0;
    for (let place = list.indexOf(value); place >= 0 && removed < (most || Infinity); place = list.indexOf(value)) {
      list.splice(place, 1);
      removed += 1;
    }
    if (removed > 0) redis.shrunk(key);
    return removed;
  },
  lpos: (redis, [key = '', value = '', option, most]) => {
    if (option !== undefined && option.toUpperCase() !== 'MAXLEN') return notModelled(`LPOS with ${option}`);
    const list = redis.entryOf('list', key)?.value ?? [];
    const limit = option === undefined ? 0 : whole(most);
    const place = (limit > 0 ? list.slice(0, limit) : list).indexOf(value);
    return place < 0 ? null : place;
  },
};

export const SET_COMMANDS: Commands = {
  sadd: (redis, [key = '', ...members]) => {
    const { value } = redis.entryFor('set', key);
    const before = value.size;
    for (const member of members) value.add(member);
    redis.changed(key);
    return value.size - before;
  },
  srem: (redis, [key = '', ...members]) => {
    const set = redis.entryOf('set', key)?.value;
    const removed = set ? members.filter((member) => set.delete(member)).length : 0;
    if (removed > 0) redis.shrunk(key);
    return removed;
  },
  scard: (redis, [key = '']) => redis.entryOf('set', key)?.value.size ?? 0,
  sismember: (redis, [key = '', member = '']) => Number(redis.entryOf('set', key)?.value.has(member) ?? false),
  smembers: (redis, [key = '']) => new Set(redis.entryOf('set', key)?.value ?? []),
};
