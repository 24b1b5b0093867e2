// The keys and the channel of the cache at Redis, and the rights that an ACL user needs for them.

import { randomUUID } from 'node:crypto';
import { escapeGlob } from '../../../keys/redis-glob.js';
import type { Probe, Rights } from '../connection/server-check.js';

/**
 * The keys of the cache in Redis. A value is the string `cache:<key>`, after the prefix. Its lease and its barrier lie
 * in the same Cluster slot: `lease:{cache:<key>}`, or `lease:cache:{tag}...` where the key begins with a hash tag of
 * its own. Any other `}` in a key would end the hash tag and is percent-encoded.
 */
export class RedisCacheKeys {
  /** The channel of all messages of the cache. */
  readonly channel: string;
  /** The key of the time when any tag was last invalidated. */
  readonly lastTagInvalidation: string;
  private readonly values: string;
  private readonly before: string;

  /** `clientPrefix` is what the client prepends to every key; Redis hashes it into the slot. */
  constructor(
    prefix: string | undefined,
    private readonly clientPrefix = '',
  ) {
    this.before = prefix === undefined ? '' : `${prefix}:`;
    this.values = `${this.before}cache:`;
    this.channel = `${this.beforeKeys}bus`;
    this.lastTagInvalidation = `${this.before}cache-tags`;
  }

  value(key: string): string {
    return this.values + (key.includes('}') || key.includes('%') ? escaped(key) : key);
  }

  /** The beginning of every value's key, as the server sees it. */
  get beforeKeys(): string {
    return this.clientPrefix + this.values;
  }

  /** The cache key of a value, from the key that the server names. */
  keyOf(value: string): string {
    const key = value.slice(this.beforeKeys.length);
    return beginsWithTag(key) ? key : key.replace(/%25|%7D/g, (code) => (code === '%25' ? '%' : '}'));
  }

  /** The keys of a value, of its load lease and of its barrier. */
  valueLeaseAndBarrier(key: string): [value: string, lease: string, barrier: string] {
    const value = this.value(key);
    const tagged = key.startsWith('{') && beginsWithTag(key) ? value : `{${this.clientPrefix}${value}}`;
    return [value, `${this.before}lease:${tagged}`, `${this.before}barrier:${tagged}`];
  }

  /** The key of the load lease. */
  lease(key: string): string {
    return this.valueLeaseAndBarrier(key)[1];
  }

  /** The key of the barrier: the writes under way. */
  barrier(key: string): string {
    return this.valueLeaseAndBarrier(key)[2];
  }

  tag(tag: string): string {
    return `${this.before}cache-tag:${tag}`;
  }

  set(key: string): string {
    return `${this.before}cache-set:${key}`;
  }

  expiringSet(key: string): string {
    return `${this.before}cache-expiring-set:${key}`;
  }

  /** Always in braces, so that the keys of a rebuild share the slot. */
  bits(key: string): string {
    return `${this.before}cache-bits:{${escaped(key)}}`;
  }

  /** The key of the copy that a rebuild fills. */
  rebuiltBits(key: string): string {
    return `${this.bits(key)}:rebuilt`;
  }

  /** The key of the token of the rebuild. */
  rebuilder(key: string): string {
    return `${this.bits(key)}:rebuilder`;
  }

  /** The key of the protocol versions in use: see NOTE_VERSION. */
  get versions(): string {
    return `${this.before}cache-versions`;
  }

  /** The key of the scheduled deletions. */
  get scheduled(): string {
    return `${this.before}cache-scheduled`;
  }

  /** Globs that match the values and the leases of all keys of `match`. They may match more keys, never fewer. */
  globs(match: { readonly prefix: string } | { readonly pattern: string }): { values: string; leases: string } {
    const keys = 'prefix' in match ? `${escapeGlob(beginningOf(match.prefix))}*` : match.pattern;
    const all = escapeGlob(this.clientPrefix);
    const values = `${escapeGlob(this.values)}${keys}`;
    return { values: all + values, leases: `${all}${escapeGlob(this.before)}lease:*${values}*` };
  }
}

/** Whether the key begins with a Cluster hash tag: `{tag}`. */
function beginsWithTag(key: string): boolean {
  return key.startsWith('{') && key.indexOf('}') > 1;
}

/** Escapes `%7D` too, so that two keys never become one. */
function escaped(key: string): string {
  if (beginsWithTag(key)) return key;
  return key.replace(/%(?=25|7D)/g, '%25').replaceAll('}', '%7D');
}

/** The longest text with which the escaped form of every key with this prefix begins. */
function beginningOf(prefix: string): string {
  // The prefix may end within a hash tag, in which nothing is escaped.
  if (prefix.startsWith('{') && !prefix.includes('}')) return prefix.replace(/%.*$/s, '');
  // The next character may complete `%7D`, which is escaped.
  return escaped(prefix).replace(/%7$/, '%');
}

/** `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis). */
export function rightsOfCache(prefix: string | undefined, clientPrefix = ''): Rights {
  const keys = new RedisCacheKeys(prefix, clientPrefix);
  const before = clientPrefix + (prefix === undefined ? '' : `${prefix}:`);
  return {
    whose: 'the cache',
    evictable: true,
    keyPatterns: [`${before}cache*`, `${before}lease:*`, `${before}barrier:*`],
    messages: { channelPattern: `${keys.channel}*`, channel: `${keys.channel}:check:${randomUUID()}` },
    probes: PROBES,
    keys: () => {
      // The braces put the set into the same Cluster slot as the other keys.
      const key = `{check:${randomUUID()}}`;
      return [...keys.valueLeaseAndBarrier(key), keys.set(key)];
    },
  };
}

/**
 * Every command that the cache sends or its scripts run, each on a key of its type: 1 value, 2 lease, 3 barrier, 4 set.
 * What they write is deleted or expires after 1 ms.
 */
const PROBES: readonly Probe[] = [
  ['TIME'],
  ['SET', 1, '1', 'PX', '1'],
  ['GET', 1],
  ['MGET', 1],
  ['EXISTS', 1],
  ['PTTL', 1],
  ['PEXPIRE', 1, '1'],
  ['DEL', 1],
  ['INCRBY', 1, '1'],
  ['PEXPIREAT', 1, '1'],
  ['SETBIT', 1, '0', '1'],
  ['GETBIT', 1, '0'],
  ['GETRANGE', 1, '0', '0'],
  ['STRLEN', 1],
  ['PERSIST', 1],
  ['PEXPIRE', 1, '1'],
  ['SCAN', '0', 'COUNT', '1'],
  ['SET', 2, '1', 'PX', '1'],
  ['RENAME', 2, 1],
  ['ZADD', 3, '1', '1'],
  ['PEXPIRE', 3, '1'],
  ['ZCARD', 3],
  ['ZSCORE', 3, '1'],
  ['ZRANGE', 3, '0', '0'],
  ['ZRANGEBYSCORE', 3, '1', '1'],
  ['ZREMRANGEBYSCORE', 3, '0', '0'],
  ['ZREM', 3, '1'],
  ['SADD', 4, '1'],
  ['PEXPIRE', 4, '1'],
  ['SISMEMBER', 4, '1'],
  ['SMEMBERS', 4],
  ['SREM', 4, '1'],
  ['UNLINK', 1, 2, 3, 4],
];
