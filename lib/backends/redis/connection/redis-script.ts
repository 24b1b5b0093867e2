// A Lua script: its digest, how several calls share one run, how its replies are read, and the protocol version that
// all scripts belong to.

import { createHash } from 'node:crypto';
import { inspect } from 'node:util';
import type { TokenRange } from '../../../contracts/lock-requests.js';
import type { RedisClient } from './redis-client.js';
import type { ScriptArgument } from './script-batch.js';

/**
 * A Lua script with the digest that EVALSHA calls it by. Its last argument is the id of the call, and its reply the
 * list of that id and the answer: see `ScriptRunner.replied`.
 */
export interface RedisScript {
  readonly lua: string;
  readonly sha1: string;
  /** The beginning of its call as it is sent, after the number of parts, without the end of the digest. */
  readonly encoded: string;
  /** Whether the strings in its replies are bytes: a Buffer each. */
  readonly bytes: boolean;
  /** What to do instead while a Cluster migrates the slot of the keys; without it, the script waits for the end. */
  readonly stepwise?: Stepwise;
}

/**
 * Does the work of a script in steps of one key each: while a Cluster migrates a slot, it refuses scripts of several
 * keys of which some are missing. Resolves to a reply as that of the script, or to `undefined` where it could not.
 */
export type Stepwise = (run: RunScript, keys: readonly string[], args: readonly unknown[]) => Promise<unknown>;

export type RunScript = (
  script: RedisScript,
  keys: readonly string[],
  args: readonly ScriptArgument[],
) => Promise<unknown>;

/**
 * Scripts of two protocol versions differ in their digest, also where their text is the same. `bytes`: see
 * `RedisScript`.
 */
export function redisScript(text: string, { bytes = false }: { readonly bytes?: boolean } = {}): RedisScript {
  return scriptOf(
    `-- nest-redis-lock, protocol ${PROTOCOL_VERSION}
local id = table.remove(ARGV)
local answer = function()
${text}
end
return {id, answer()}`,
    bytes,
  );
}

/** A script whose whole text is `lua`. */
export function scriptOf(lua: string, bytes: boolean): RedisScript {
  const sha1 = createHash('sha1').update(lua).digest('hex');
  return { lua, sha1, bytes, encoded: `\r\n$7\r\nevalsha\r\n$${sha1.length}\r\n${sha1}` };
}

/** How the keys and arguments of several calls are laid out in KEYS and ARGV. */
interface BatchLayout {
  /**
   * Keys of one call; 'numbered' where the first argument of a call is the index of its first key. `columns`: that many
   * of each call, the first ones of all calls before the second ones, so that Lua has those of a kind in a row.
   * `shared`: keys that all calls share, before those of the first call.
   */
  readonly keys: number | 'numbered' | { readonly columns: number; readonly shared: 0 | 1 };
  /** Arguments of one call, without that index. */
  readonly args: number;
  /** Arguments that all calls share, before those of the first call. */
  readonly shared: 0 | 1;
  /** Lua that runs once, after all calls. */
  readonly end?: string;
}

/**
 * The end of a script that serves several calls: calls the Lua function `each(first key, first argument)` for each of
 * them and returns the list of results. With `columns`, the first key of a call is its number, from 1 on. An error
 * fails only its own call. A single call gets its result without a list around it.
 */
export function batchOf(each: string, { keys, args, shared, end = '' }: BatchLayout): string {
  const [columns, sharedKeys] = typeof keys === 'object' ? [keys.columns, keys.shared] : [keys, 0];
  const [key, arg] =
    keys === 'numbered'
      ? [`tonumber(ARGV[${args + 1} * i + ${shared - args}])`, `${args + 1} * i + ${1 + shared - args}`]
      : [typeof keys === 'object' ? 'i' : `${keys} * i + ${1 - Number(columns)}`, `${args} * i + ${1 + shared - args}`];
  const first = keys === 'numbered' ? 2 + shared : 1 + shared;
  const calls = keys === 'numbered' ? `(#ARGV - ${shared}) / ${args + 1}` : `(#KEYS - ${sharedKeys}) / ${columns}`;
  return `
local calls = ${calls}
if calls == 1 then
  local fine, answer = pcall(${each}, 1, ${first})
  ${end}
  if not fine and type(answer) ~= 'table' then return {err = answer} end
  return answer
end
local answers, i = {}, 0
local function go_on()
  while i < calls do
    i = i + 1
    answers[i] = ${each}(${key}, ${arg})
  end
end
while i < calls do
  local fine, failure = pcall(go_on)
  if not fine then answers[i] = type(failure) == 'table' and failure or {err = failure} end
end
${end}
return answers
`;
}

/** A client of the application may have the option `stringNumbers` of ioredis on. */
export type RedisInteger = number | string;

/** For a reply of another kind than was asked for: a proxy or a client may have mixed up its answers. */
export function unexpected(reply: unknown, due: string): Error {
  return new Error(`Redis answered ${inspect(reply)} where ${due} was due`);
}

/** @throws Error for a reply that is no whole number */
export function integerOf(reply: unknown): number {
  const integer = typeof reply === 'number' || (typeof reply === 'string' && reply !== '') ? Number(reply) : NaN;
  if (Number.isInteger(integer)) return integer;
  throw unexpected(reply, 'a whole number');
}

/**
 * The reply to several calls: a list with as many parts for each. Anything else is the answer to none of them.
 *
 * @throws Error for any other reply
 */
export function repliesOf(reply: unknown, parts: number): readonly unknown[] {
  if (Array.isArray(reply) && reply.length === parts) return reply as unknown[];
  throw unexpected(reply, `a list of ${parts}`);
}

/** Whether Redis answered yes. */
export function isOne(reply: unknown): boolean {
  return Number(reply) === 1;
}

/** Milliseconds of lease from a PTTL: `Infinity` where the key has no expiry, 0 where there is no key. */
export function leaseOf(pttl: RedisInteger | undefined): number {
  const remaining = Number(pttl);
  if (Number.isNaN(remaining)) throw unexpected(pttl, 'a time');
  return remaining === -1 ? Infinity : Math.max(0, remaining);
}

/** @throws Error for what are no tokens */
export function tokenRange([first, count]: readonly (RedisInteger | undefined)[]): TokenRange {
  const range = { first: Number(first), count: Number(count) };
  if (Number.isSafeInteger(range.first) && Number.isSafeInteger(range.count)) return range;
  throw new Error(`Redis answered ${inspect([first, count])}, which are no fencing tokens`);
}

/**
 * The version of what processes share at Redis: its keys and values, the scripts, and the messages. It grows when a
 * process of the version before would misread something. See docs/operations/rolling-updates.md.
 */
export const PROTOCOL_VERSION = 1;

/** The earliest version with whose processes this one excludes each other and shares values. */
export const EARLIEST_VERSION = 1;

/** One call of a script, with its id. */
export interface ScriptParts {
  readonly script: RedisScript;
  readonly keys: readonly string[];
  readonly args: readonly ScriptArgument[];
  readonly id: string;
}

export function sendDigest(client: RedisClient, parts: ScriptParts): Promise<unknown> {
  return sendBy(client, 'evalsha', parts.script.sha1, parts);
}

/** Sends the text of a script that the server does not know. */
export function sendText(client: RedisClient, parts: ScriptParts): Promise<unknown> {
  return sendBy(client, 'eval', parts.script.lua, parts);
}

/** As a list: a function cannot be given as many arguments as a call may have members of a set. */
function sendBy(client: RedisClient, command: string, text: string, { script, keys, args, id }: ScriptParts) {
  const parts = [text, keys.length, ...keys, ...args, id];
  return script.bytes ? client.callBuffer(command, parts) : client.call(command, parts);
}

/*
 * Plain commands as scripts: the reply of a script says which call it answers, where that of a command may be one that
 * a proxy has doubled, and belong to another key.
 */

/** KEYS: 1 string. Returns it, or nil. */
export const GET = redisScript("return redis.call('GET', KEYS[1])");

/** KEYS: 1 key. Returns its time to live in ms, -1 without one, or -2 where there is no such key. */
export const PTTL = redisScript("return redis.call('PTTL', KEYS[1])");

/** KEYS: the keys, of any number: `unpack` takes a few thousand. Returns how many existed. */
export const UNLINK = redisScript(`
local deleted = 0
for _, key in ipairs(KEYS) do deleted = deleted + redis.call('UNLINK', key) end
return deleted
`);

/** Does nothing: its own reply shows that those before it belong to their commands. See `scanOn`. */
export const CHECK = redisScript('return 1');
