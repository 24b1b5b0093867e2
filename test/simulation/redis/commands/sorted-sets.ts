// Sorted sets: a map of the score of each member, put in order where a command looks at the order.

import type { RedisModel } from '../redis-model.js';
import { DoubleReply, ErrorReply, type Reply } from '../replies.js';
import { type Command, type Commands, notModelled, number, range, whole } from './command.js';

type Scored = readonly [member: string, score: number];

export function inOrder(scores: ReadonlyMap<string, number>): Scored[] {
  return [...scores].toSorted(([a, one], [b, other]) => one - other || (a < b ? -1 : 1));
}

function membersOf(redis: RedisModel, key: string): Scored[] {
  const entry = redis.entryOf('zset', key);
  return entry ? inOrder(entry.value) : [];
}

/** Members, with scores beside them where they are asked for: in RESP3 a pair for each. */
function listed(members: readonly Scored[], withScores: boolean, connection: Parameters<Command>[2]): Reply {
  if (!withScores) return members.map(([member]) => member);
  const pairs = members.map(([member, score]): Reply[] => [member, new DoubleReply(score)]);
  return connection?.protocol === 3 ? pairs : pairs.flat();
}

/** Whether a score lies between two bounds. */
function between(least: string | undefined, most: string | undefined): (score: number) => boolean {
  const bound = (text = '') => {
    const open = text.startsWith('(');
    return { open, at: number(open ? text.slice(1) : text, 'ERR min or max is not a float') };
  };
  const [from, to] = [bound(least), bound(most)];
  return (score) => (from.open ? score > from.at : score >= from.at) && (to.open ? score < to.at : score <= to.at);
}

export const SORTED_SET_COMMANDS: Commands = {
  zadd: (redis, [key = '', ...args]) => {
    const options = new Set<string>();
    while (/^(?:NX|XX|GT|LT|CH|INCR)$/i.test(args[0] ?? '')) options.add((args.shift() ?? '').toUpperCase());
    for (const each of options) if (each !== 'NX' && each !== 'GT') notModelled(`ZADD with ${each}`);
    if (args.length === 0 || args.length % 2 === 1) return new ErrorReply('ERR syntax error');
    const pairs = Array.from(
      { length: args.length / 2 },
      (_, i) => [args[2 * i + 1] ?? '', number(args[2 * i])] as const,
    );
    const { value } = redis.entryFor('zset', key);
    const before = value.size;
    for (const [member, score] of pairs) {
      const known = value.get(member);
      if (known !== undefined && (options.has('NX') || (options.has('GT') && score <= known))) continue;
      value.set(member, score);
    }
    redis.changed(key);
    return value.size - before;
  },
  zrem: (redis, [key = '', ...members]) => {
    const scores = redis.entryOf('zset', key)?.value;
    const removed = scores ? members.filter((member) => scores.delete(member)).length : 0;
    if (removed > 0) redis.shrunk(key);
    return removed;
  },
  zremrangebyscore: (redis, [key = '', least, most]) => {
    const includes = between(least, most);
    const scores = redis.entryOf('zset', key)?.value ?? new Map<string, number>();
    const removed = [...scores].filter(([, score]) => includes(score));
    for (const [member] of removed) scores.delete(member);
    if (removed.length > 0) redis.shrunk(key);
    return removed.length;
  },
  zcard: (redis, [key = '']) => redis.entryOf('zset', key)?.value.size ?? 0,
  zcount: (redis, [key = '', least, most]) => {
    const includes = between(least, most);
    return membersOf(redis, key).filter(([, score]) => includes(score)).length;
  },
  zscore: (redis, [key = '', member = '']) => {
    const score = redis.entryOf('zset', key)?.value.get(member);
    return score === undefined ? null : new DoubleReply(score);
  },
  zrange: (redis, [key = '', start, stop, option, ...others], connection) => {
    if (others.length > 0 || (option !== undefined && option.toUpperCase() !== 'WITHSCORES')) {
      return notModelled(`ZRANGE with ${[option, ...others].join(' ')}`);
    }
    const members = membersOf(redis, key);
    return listed(members.slice(...range(members.length, start, stop)), option !== undefined, connection);
  },
  zrangebyscore: (redis, [key = '', least, most, ...options], connection) => {
    const includes = between(least, most);
    let found = membersOf(redis, key).filter(([, score]) => includes(score));
    let withScores = false;
    for (let i = 0; i < options.length; i++) {
      const option = options[i]?.toUpperCase();
      if (option === 'WITHSCORES') withScores = true;
      else if (option === 'LIMIT') {
        const [offset, count] = [whole(options[++i]), whole(options[++i])];
        found = found.slice(offset, count < 0 ? undefined : offset + count);
      } else return new ErrorReply('ERR syntax error');
    }
    return listed(found, withScores, connection);
  },
};
