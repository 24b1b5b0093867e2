// A Redis of the commands that the library uses, in memory, on a clock that is given to it. One object is one server.
// What it does not know it does not answer: it throws.

import { COMMANDS, NEEDS_MEMORY, NOT_IN_SCRIPTS, WHILE_SUBSCRIBED, WRITES } from './commands/index.js';
import type { LuaBridge } from './lua.js';
import { ErrorReply, Refused, type Reply } from './replies.js';
import type { Protocol } from './resp.js';
import { Tracking } from './tracking.js';

/** What the server knows of a client. */
export interface Connection {
  protocol?: Protocol;
  channels?: Set<string>;
  id?: number;
  push(message: readonly Reply[]): void;
}

interface Values {
  readonly string: string;
  readonly hash: Map<string, string>;
  readonly list: string[];
  readonly set: Set<string>;
  readonly zset: Map<string, number>;
}

/** A key: its value, and the ms after which it is gone. */
export type Entry = {
  [Type in keyof Values]: { readonly type: Type; value: Values[Type]; expires: number | undefined };
}[keyof Values];

type EntryOf<Type extends keyof Values> = Extract<Entry, { readonly type: Type }>;
type Collection = Exclude<keyof Values, 'string'>;

const EMPTY: { readonly [Type in Collection]: () => Values[Type] } = {
  hash: () => new Map(),
  list: () => [],
  set: () => new Set(),
  zset: () => new Map(),
};

const OUT_OF_MEMORY = new ErrorReply("OOM command not allowed when used memory > 'maxmemory'.");
const READ_ONLY = new ErrorReply("READONLY You can't write against a read only replica.");

export class RedisModel {
  readonly data = new Map<string, Entry>();
  readonly scripts = new Map<string, string>();
  /** By channel: the connections that listen. */
  readonly channels = new Map<string, Set<Connection>>();
  readonly version = '7.0.15';
  /** Changes with a restart. */
  runId = '0'.repeat(40);
  /** The ms of the wall clock at its start. */
  startedAt: number;
  /** How many replicas confirm each write. */
  replicas = 0;
  /** Out of memory: refuses what needs more, except after the first write of a script. */
  full = false;
  /** A replica. */
  readOnly = false;
  /** What INFO says of it. */
  evictionPolicy = 'noeviction';
  readonly tracking = new Tracking((id) => this.connections.get(id));
  private readonly connections = new Map<number, Connection>();
  private lastId = 0;
  private readonly micros: () => number;
  private readonly lua: LuaBridge;
  private time = 0;
  /** The ms of the command that runs. */
  now = 0;
  /** Whether the script that runs may write although there is no memory: it has already written. */
  private written: boolean | undefined;

  /** `micros()` is the wall clock of the server, in whole µs. */
  constructor({ micros, lua }: { readonly micros: () => number; readonly lua: LuaBridge }) {
    this.micros = micros;
    this.lua = lua;
    this.startedAt = Math.floor(micros() / 1_000);
  }

  /** Carries out one command of a connection. `undefined`: the answers are pushed. */
  execute(connection: Connection, args: readonly string[]): Reply | undefined {
    this.readClock();
    const name = args[0]?.toLowerCase() ?? '';
    if (connection.protocol !== 3 && connection.channels?.size && !WHILE_SUBSCRIBED.has(name)) {
      return new ErrorReply(
        `ERR Can't execute '${name}': only (P|S)SUBSCRIBE and the like are allowed in this context`,
      );
    }
    const reply = this.carryOut(args, connection);
    this.tracking.tell();
    return reply;
  }

  /** The end of a connection. */
  close(connection: Connection): void {
    for (const channel of connection.channels ?? []) this.forget(connection, channel);
    if (connection.id === undefined) return;
    this.connections.delete(connection.id);
    this.tracking.forget(connection.id);
  }

  /** Removes a key as for want of memory. */
  evict(key: string): void {
    this.readClock();
    this.remove(key);
    this.tracking.tell();
  }

  /** All keys with their type, value and PTTL, in the order of their names. */
  dump(): [key: string, type: string, value: unknown, pttl: number][] {
    this.readClock();
    return [...this.data]
      .filter(([, entry]) => !this.isExpired(entry))
      .toSorted(byName)
      .map(([key, entry]) => {
        const { type, value } = entry;
        const plain = type === 'string' || type === 'list' ? value : [...value].toSorted(byName);
        return [key, type, plain, this.pttl(entry)];
      });
  }

  // What commands are made of.

  /** Seconds, and µs of the second. */
  get clock(): [string, string] {
    return [String(Math.floor(this.time / 1e6)), String(this.time % 1e6)];
  }

  idOf(connection: Connection): number {
    if (connection.id === undefined) {
      connection.id = ++this.lastId;
      this.connections.set(connection.id, connection);
    }
    return connection.id;
  }

  info(): string {
    const uptime = Math.max(0, Math.floor((this.now - this.startedAt) / 1_000));
    return [
      '# Server',
      `redis_version:${this.version}`,
      'redis_mode:standalone',
      `run_id:${this.runId}`,
      `uptime_in_seconds:${uptime}`,
      '# Memory',
      `maxmemory:${this.evictionPolicy === 'noeviction' && !this.full ? 0 : 1_000_000}`,
      `maxmemory_policy:${this.evictionPolicy}`,
      '# Persistence',
      'loading:0',
      '# Replication',
      `role:${this.readOnly ? 'slave' : 'master'}`,
      `connected_slaves:${this.replicas}`,
      '',
    ].join('\r\n');
  }

  /** A key lives in the millisecond in which it expires. */
  isExpired({ expires }: Entry): boolean {
    return expires !== undefined && expires < this.now;
  }

  /** What has expired goes when it is looked at. */
  entry(key: string): Entry | undefined {
    const entry = this.data.get(key);
    if (!entry || !this.isExpired(entry)) return entry;
    this.data.delete(key);
    this.changed(key);
    return undefined;
  }

  entryOf<Type extends keyof Values>(type: Type, key: string): EntryOf<Type> | undefined {
    const entry = this.entry(key);
    if (entry && entry.type !== type) {
      throw new Refused('WRONGTYPE Operation against a key holding the wrong kind of value');
    }
    return entry as EntryOf<Type> | undefined;
  }

  entryFor<Type extends Collection>(type: Type, key: string): EntryOf<Type> {
    const present = this.entryOf(type, key);
    if (present) return present;
    const entry = { type, value: EMPTY[type](), expires: undefined } as unknown as EntryOf<Type>;
    this.data.set(key, entry);
    return entry;
  }

  put(key: string, value: string, expires: number | undefined): void {
    this.data.set(key, { type: 'string', value, expires });
    this.changed(key);
  }

  remove(key: string): number {
    if (!this.entry(key)) return 0;
    this.data.delete(key);
    this.changed(key);
    return 1;
  }

  /** Something was removed from the collection, which is gone with its last member. */
  shrunk(key: string): void {
    const entry = this.data.get(key);
    if (entry && (entry.type === 'string' || entry.type === 'list' ? entry.value.length : entry.value.size) === 0) {
      this.data.delete(key);
    }
    this.changed(key);
  }

  changed(key: string): void {
    this.tracking.changed(key);
  }

  pttl({ expires }: Entry): number {
    return expires === undefined ? -1 : Math.max(0, expires - this.now);
  }

  runScript(text: string, keys: readonly string[], args: readonly string[]): Reply {
    this.written = false;
    try {
      return this.lua.run(text, keys, args, this.callFromScript);
    } finally {
      this.written = undefined;
    }
  }

  subscribe(connection: Connection, channel: string): void {
    connection.channels ??= new Set();
    connection.channels.add(channel);
    const listeners = this.channels.get(channel) ?? new Set();
    listeners.add(connection);
    this.channels.set(channel, listeners);
    connection.push(['subscribe', channel, connection.channels.size]);
  }

  unsubscribe(connection: Connection, channel: string): void {
    this.forget(connection, channel);
    connection.push(['unsubscribe', channel, connection.channels?.size ?? 0]);
  }

  publish(channel: string, message: string): number {
    const listeners = [...(this.channels.get(channel) ?? [])];
    for (const connection of listeners) connection.push(['message', channel, message]);
    return listeners.length;
  }

  private forget(connection: Connection, channel: string): void {
    connection.channels?.delete(channel);
    const listeners = this.channels.get(channel);
    listeners?.delete(connection);
    if (listeners?.size === 0) this.channels.delete(channel);
  }

  private readClock(): void {
    this.time = this.micros();
    this.now = Math.floor(this.time / 1_000);
  }

  private readonly callFromScript = (args: readonly string[]): Reply => {
    const [name] = args;
    if (name === undefined) return new ErrorReply('ERR Please specify at least one argument for this redis.call()');
    if (NOT_IN_SCRIPTS.has(name.toLowerCase())) {
      return new ErrorReply('ERR This Redis command is not allowed from script');
    }
    return this.carryOut(args, undefined) ?? null;
  };

  private carryOut([first = '', ...args]: readonly string[], connection: Connection | undefined): Reply | undefined {
    const name = first.toLowerCase();
    const command = COMMANDS.get(name);
    if (!command) {
      throw new Error(`The model of Redis does not know the command ${first}`);
    }
    if (WRITES.has(name)) {
      if (this.readOnly) return READ_ONLY;
      if (this.full && !this.written && NEEDS_MEMORY.has(name)) return OUT_OF_MEMORY;
      if (this.written !== undefined) this.written = true;
    }
    try {
      return command(this, args, connection);
    } catch (error) {
      if (error instanceof Refused) return error.reply;
      throw error;
    }
  }
}

function byName(one: string | readonly [string, unknown], other: string | readonly [string, unknown]): number {
  return (typeof one === 'string' ? one : one[0]) < (typeof other === 'string' ? other : other[0]) ? -1 : 1;
}
