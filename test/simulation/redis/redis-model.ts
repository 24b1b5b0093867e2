// A Redis of the commands that the library uses, in memory, on a clock that is given to it. One object is one server.

import { COMMANDS, NOT_IN_SCRIPTS } from './commands.js';
import type { LuaBridge } from './lua.js';
import { ErrorReply, Refused, type Reply } from './replies.js';
import type { Protocol } from './resp.js';

/** What the server knows of a client. */
export interface Connection {
  protocol?: Protocol;
  channels?: Set<string>;
  push(message: readonly Reply[]): void;
}

export interface Values {
  readonly string: string;
  readonly hash: Map<string, string>;
  readonly list: string[];
}

/** A key: its value, and the ms after which it is gone. */
export type Entry = {
  [Type in keyof Values]: { readonly type: Type; value: Values[Type]; expires: number | undefined };
}[keyof Values];

type EntryOf<Type extends keyof Values> = Extract<Entry, { readonly type: Type }>;

function byName([one]: readonly [string, string], [other]: readonly [string, string]): number {
  return one < other ? -1 : 1;
}

const WRONG_TYPE = new ErrorReply('WRONGTYPE Operation against a key holding the wrong kind of value');

export class RedisModel {
  readonly data = new Map<string, Entry>();
  readonly scripts = new Map<string, string>();
  /** By channel: the connections that listen. */
  readonly channels = new Map<string, Set<Connection>>();
  private readonly micros: () => number;
  private readonly lua: LuaBridge;
  private time = 0;
  /** The ms of the command that runs. */
  now = 0;

  /** `micros()` is the wall clock of the server, in whole µs. */
  constructor({ micros, lua }: { readonly micros: () => number; readonly lua: LuaBridge }) {
    this.micros = micros;
    this.lua = lua;
  }

  /** Carries out one command of a connection. `undefined`: the answers are pushed. */
  execute(connection: Connection, args: readonly string[]): Reply | undefined {
    this.readClock();
    return this.carryOut(args, connection);
  }

  /** The end of a connection. */
  close(connection: Connection): void {
    for (const channel of connection.channels ?? []) this.forget(connection, channel);
  }

  /** All keys with their type, value and PTTL, in the order of their names. */
  dump(): [key: string, type: string, value: unknown, pttl: number][] {
    this.readClock();
    return [...this.data.keys()].toSorted().flatMap((key) => {
      const entry = this.entry(key);
      if (!entry) return [];
      const { type, value } = entry;
      const plain = type === 'hash' ? [...value].toSorted(byName) : type === 'list' ? [...value] : value;
      return [[key, type, plain, this.pttl(entry)]];
    });
  }

  // What commands are made of.

  /** Seconds, and µs of the second. */
  get clock(): [string, string] {
    return [String(Math.floor(this.time / 1e6)), String(this.time % 1e6)];
  }

  /** A key lives in the millisecond in which it expires. */
  entry(key: string): Entry | undefined {
    const entry = this.data.get(key);
    if (!entry || entry.expires === undefined || this.now <= entry.expires) return entry;
    this.data.delete(key);
    return undefined;
  }

  entryOf<Type extends keyof Values>(type: Type, key: string): EntryOf<Type> | undefined {
    const entry = this.entry(key);
    if (entry && entry.type !== type) throw new Refused(WRONG_TYPE);
    return entry as EntryOf<Type> | undefined;
  }

  entryFor<Type extends 'hash' | 'list'>(type: Type, key: string): EntryOf<Type> {
    const present = this.entryOf(type, key);
    if (present) return present;
    const value = type === 'hash' ? new Map<string, string>() : [];
    const entry = { type, value, expires: undefined } as unknown as EntryOf<Type>;
    this.data.set(key, entry);
    return entry;
  }

  put(key: string, value: string, expires: number | undefined): void {
    this.data.set(key, { type: 'string', value, expires });
  }

  remove(key: string): number {
    return this.entry(key) ? Number(this.data.delete(key)) : 0;
  }

  removeIfEmpty(key: string, { type, value }: Entry): void {
    if ((type === 'hash' ? value.size : value.length) === 0) this.data.delete(key);
  }

  pttl({ expires }: Entry): number {
    return expires === undefined ? -1 : Math.max(0, expires - this.now);
  }

  runScript(text: string, keys: readonly string[], args: readonly string[]): Reply {
    return this.lua.run(text, keys, args, (command) => {
      const [name] = command;
      if (name === undefined) return new ErrorReply('ERR Please specify at least one argument for this redis.call()');
      if (NOT_IN_SCRIPTS.has(name.toLowerCase())) {
        return new ErrorReply('ERR This Redis command is not allowed from script');
      }
      return this.carryOut(command, undefined) ?? null;
    });
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

  private carryOut(args: readonly string[], connection: Connection | undefined): Reply | undefined {
    const [name = '', ...rest] = args;
    const command = COMMANDS.get(name.toLowerCase());
    if (!command) return new ErrorReply(`ERR unknown command '${name}', with args beginning with: `);
    try {
      return command(this, rest, connection);
    } catch (error) {
      if (error instanceof Refused) return error.reply;
      throw error;
    }
  }
}
