// The commands and the errors of the adapted clients of node-redis.

import { EventEmitter } from 'node:events';
import type { ScriptArgument } from './script-batch.js';
import type { CommandArgument } from './node-redis-clients.js';

/** The commands of `RedisClient`, as raw commands of node-redis, which puts no prefix before the keys of those. */
export abstract class AdaptedCommands extends EventEmitter {
  protected constructor(protected readonly keyPrefix: string) {
    super();
  }

  /** `key` is that of the slot, in a Cluster. With `bytes`, text is answered as a Buffer. */
  protected abstract send(key: string | undefined, args: readonly CommandArgument[], bytes?: boolean): Promise<unknown>;

  evalsha(sha1: string, keys: number, ...rest: ScriptArgument[]): Promise<unknown> {
    return this.script('EVALSHA', sha1, keys, rest, false);
  }

  eval(lua: string, keys: number, ...rest: ScriptArgument[]): Promise<unknown> {
    return this.script('EVAL', lua, keys, rest, false);
  }

  call(command: string, args: ScriptArgument[], bytes = false): Promise<unknown> {
    const name = command.toUpperCase();
    if (name !== 'EVALSHA' && name !== 'EVAL') return this.send(undefined, [name, ...args.map(String)], bytes);
    const [script, keys, ...rest] = args;
    return this.script(name, String(script), Number(keys), rest, bytes);
  }

  callBuffer(command: string, args: ScriptArgument[]): Promise<unknown> {
    return this.call(command, args, true);
  }

  ping(): Promise<string> {
    return this.send(undefined, ['PING']) as Promise<string>;
  }

  get(key: string): Promise<string | null> {
    return this.onKey('GET', key) as Promise<string | null>;
  }

  getBuffer(key: string): Promise<Buffer | null> {
    const prefixed = this.keyPrefix + key;
    return this.send(prefixed, ['GET', prefixed], true) as Promise<Buffer | null>;
  }

  mgetBuffer(keys: string[]): Promise<(Buffer | null)[]> {
    const prefixed = this.prefixed(keys);
    return this.send(prefixed[0], ['MGET', ...prefixed], true) as Promise<(Buffer | null)[]>;
  }

  set(key: string, value: string, unit: 'PX', ttl: number, ...when: 'NX'[]): Promise<unknown> {
    return this.onKey('SET', key, value, unit, String(ttl), ...when);
  }

  del(key: string): Promise<number> {
    return this.onKey('DEL', key) as Promise<number>;
  }

  unlink(keys: string[]): Promise<number> {
    const prefixed = this.prefixed(keys);
    return this.send(prefixed[0], ['UNLINK', ...prefixed]) as Promise<number>;
  }

  publish(channel: string, message: string): Promise<number> {
    return this.send(undefined, ['PUBLISH', channel, message]) as Promise<number>;
  }

  time(): Promise<string[]> {
    return this.send(undefined, ['TIME']) as Promise<string[]>;
  }

  info(section: string): Promise<string> {
    return this.send(undefined, ['INFO', section]) as Promise<string>;
  }

  private onKey(command: string, key: string, ...args: string[]): Promise<unknown> {
    const prefixed = this.keyPrefix + key;
    return this.send(prefixed, [command, prefixed, ...args]);
  }

  private async script(
    command: string,
    script: string,
    keys: number,
    rest: readonly ScriptArgument[],
    bytes: boolean,
  ): Promise<unknown> {
    const args: CommandArgument[] = [command, script, String(keys)];
    for (const [index, arg] of rest.entries()) {
      if (index < keys) args.push(this.keyPrefix + String(arg));
      else args.push(typeof arg === 'number' ? String(arg) : arg);
    }
    const reply = await this.send(keys > 0 ? this.keyPrefix + String(rest[0]) : undefined, args, bytes);
    if (Array.isArray(reply)) nameErrors(reply);
    return reply;
  }

  private prefixed(keys: readonly string[]): string[] {
    return keys.map((key) => this.keyPrefix + key);
  }
}

/** Whether Redis answered this error. node-redis has classes for that, but no names that a bundler keeps. */
export function isReplyError(error: unknown): error is Error {
  return error instanceof Error && CODE.test(error.message);
}

/**
 * Every error that Redis answers begins with its code, as in "READONLY You can't write". Those of node-redis do not.
 */
const CODE = /^[A-Z][A-Z0-9_]* /;

/** Gives an error that Redis answered the name by which the library recognises it: the one of ioredis. */
export function named(error: unknown): unknown {
  if (isReplyError(error)) error.name = 'ReplyError';
  return error;
}

/** Those of single calls in one run of a script, too. */
function nameErrors(reply: readonly unknown[]): void {
  for (const part of reply) {
    if (part instanceof Error) named(part);
    else if (Array.isArray(part)) nameErrors(part);
  }
}

/**
 * The last answer to a command that node-redis 6 has redirected too often, in the form of ioredis; node-redis 5 rejects
 * with the answer itself.
 */
export function lastRedirection(error: unknown): Error | undefined {
  if (!(error instanceof Error) || !isReplyError(error.cause)) return undefined;
  const { message } = error.cause;
  return new Error(`Too many Cluster redirections. Last error: ReplyError: ${message}`, { cause: error });
}
