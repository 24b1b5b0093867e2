// The keys and channels of locks at Redis, and the rights that an ACL user needs for them.

import { randomUUID } from 'node:crypto';
import { escapeGlob } from '../../../keys/redis-glob.js';
import type { RedisClient } from '../connection/redis-client.js';
import { PROBES_OF_TEXT, type Probe, type Rights } from '../connection/server-check.js';

/** The keys and channels of the locks of one module: what they begin with is made once. */
export class LockKeys {
  /** The text with which the channel of every process begins; the id of the process follows. */
  readonly channels: string;
  private readonly beginning: string;

  constructor(prefix: string | undefined) {
    const before = prefix === undefined ? '' : `${prefix}:`;
    this.channels = `${before}lock:process:`;
    this.beginning = `${before}lock:{`;
  }

  /** The four of a lock: the lock, the first fencing token not yet issued, the queue, and the data of its waiters. */
  of(name: string): [lock: string, fence: string, queue: string, waiters: string] {
    const lock = `${this.beginning}${taggedName(name)}}`;
    return [lock, `${lock}:fence`, `${lock}:queue`, `${lock}:waiters`];
  }

  /** The key of a lock alone: `lock:{<name>}`, after the prefix. */
  lock(name: string): string {
    return this.of(name)[0];
  }

  /**
   * The key of a process's label. The pattern that lock keys match (for ACL rules) matches it, but it is never the key
   * of a lock.
   */
  label(process: string): string {
    return `${this.lock(process)}:label`;
  }

  /** The key of the protocol versions in use: see NOTE_VERSION. It is never the key of a lock. */
  get versions(): string {
    return `${this.lock('protocol')}:versions`;
  }

  /** A glob that matches the key of every lock whose name matches `pattern`, and perhaps of others. */
  glob(clientPrefix: string, pattern: string): string {
    // What stands for a `}` at the beginning of a name does not match it in its percent-encoded form.
    const names = /^[?[\\]|[}%]/.test(pattern) ? '*' : pattern;
    return `${escapeGlob(clientPrefix + this.beginning)}${names}}`;
  }

  /** The name of the lock whose key this is; `undefined` for another key of a lock, or of a process. */
  nameOf(key: string): string | undefined {
    if (!key.startsWith(this.beginning) || !key.endsWith('}')) return undefined;
    const name = key.slice(this.beginning.length, -1);
    return name.replace(/^%7D|^%25(?=(25)*7D)/, (code) => (code === '%7D' ? '}' : '%'));
  }

  /** The argument from which a script learns how to publish: see QUEUE. */
  publishing({ isCluster }: RedisClient): string {
    return `${isCluster ? 0 : 1}${this.channels}`;
  }

  /**
   * `clientPrefix` is what the client prepends to every key (`keyPrefix` of ioredis), but never to a channel. `waits`:
   * for replicas.
   */
  rights(clientPrefix = '', waits = false): Rights {
    const { channels } = this;
    return {
      whose: 'locks',
      evictable: false,
      keyPatterns: [`${clientPrefix}${this.beginning}*`],
      messages: { channelPattern: `${channels}*`, channel: `${channels}check:${randomUUID()}` },
      probes: PROBES,
      ...(waits && { commands: [['WAIT', '0', '1']] }),
      keys: () => this.of(`check:${randomUUID()}`),
    };
  }
}

/**
 * The name as it stands between braces, which make it the hash tag, so that all keys of a lock share a Cluster slot; a
 * name that begins with `{tag}` has that tag instead. A `}` at the beginning would close the tag at once and is
 * percent-encoded, and so is the `%` of text that looks like an encoded one (`%7D`, `%257D`).
 */
export function taggedName(name: string): string {
  return name.startsWith('}') || name.startsWith('%') ? encodeBeginning(name) : name;
}

function encodeBeginning(name: string): string {
  return name.replace(/^}|^%(?=(25)*7D)/, (char) => (char === '}' ? '%7D' : '%25'));
}

/** Every command of the lock scripts, each on a key of its type. What they write is deleted or expires after 1 ms. */
const PROBES: readonly Probe[] = [
  ...PROBES_OF_TEXT,
  ['RPUSH', 3, '1'],
  ['PEXPIRE', 3, '1'],
  ['LLEN', 3],
  ['LINDEX', 3, '0'],
  ['LINSERT', 3, 'BEFORE', '0', '1'],
  ['LPOS', 3, '1'],
  ['LREM', 3, '1', '1'],
  ['HSET', 4, '1', '1'],
  ['PEXPIRE', 4, '1'],
  ['HGET', 4, '1'],
  ['HLEN', 4],
  ['HEXISTS', 4, '1'],
  ['HDEL', 4, '1'],
];
