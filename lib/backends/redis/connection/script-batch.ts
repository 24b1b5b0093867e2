// Calls of scripts on their way to a server: several in one run, or one alone, encoded once.

import type { Command, Redis } from 'ioredis';
import type { Pending } from '../../../contracts/store.js';
import { BatchedCall } from '../../batch.js';
import { installedIoredis } from './ioredis.js';
import type { RedisClient } from './redis-client.js';
import { repliesOf, type RedisScript } from './redis-script.js';
import type { ScriptRunner } from './script-runner.js';

/**
 * The most calls in one run of a script: the server works on one run while the next is gathered. 24 measured 1.2 times
 * the throughput of 64.
 */
const MOST_CALLS = 24;

/**
 * Runs a script once for all calls of one turn of the event loop, because sending a command costs the client and the
 * server more than the work of one call. While no run is under way, a call is sent at once, so a single call never
 * waits.
 *
 * In a Redis Cluster, where a script may touch one slot only, each call is a run of its own. Where Redis refuses the
 * keys of a run, each of its calls is sent alone: one bad key fails one call.
 */
export class ScriptBatch {
  private keys: string[] = [];
  private args: ScriptArgument[] = [];
  private calls: ScriptCall[] = [];
  private lastKeys: readonly string[] | undefined;
  private firstKey = 0;
  private shared: string | undefined;
  private sharedKey: string | undefined;
  /** How many runs are not answered yet. */
  underWay = 0;
  private gathering = false;
  private together = false;
  private readonly endTurn = () => {
    this.gathering = false;
    this.flush();
  };

  constructor(
    private readonly scripts: ScriptRunner,
    private readonly script: RedisScript,
    /**
     * 'numbered': a call whose list of keys is that of the call before shares them. 'columns': the keys of a run are
     * sent by their place in the calls. See `batchOf`.
     */
    private readonly keysOfCalls: 'own' | 'numbered' | 'columns' = 'own',
  ) {}

  /**
   * `shared` is the first argument of the script, common to all calls of one run; `undefined` for a script without one.
   * So is `sharedKey` its first key. `batchOf` describes the layout of keys and arguments.
   *
   * Settles to the result of `read` for the reply to this call; fails when this call or the whole script failed.
   */
  run<T>(
    shared: string | undefined,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    read: (reply: unknown) => T,
    sharedKey?: string,
  ): Pending<T> {
    const call = new BatchedCall(read);
    if (this.together || this.underWay > 0 || this.calls.length > 0) this.gather(shared, keys, args, call, sharedKey);
    else {
      const first = shared === undefined ? [] : [shared];
      const all = this.keysOfCalls === 'numbered' ? [...first, 1, ...args] : [...first, ...args];
      const allKeys = sharedKey === undefined ? keys : [sharedKey, ...keys];
      const request = { script: this.script, keys: allKeys, args: all };
      this.underWay = 1;
      if (!this.scripts.sendEncoded(request, call, this)) this.scripts.sendAlone({ request, call, batch: this });
    }
    return call;
  }

  /** Begins several calls with `run`, in one run of the script where it may be one. */
  runTogether<T>(begin: () => T): T {
    this.together = true;
    try {
      return begin();
    } finally {
      this.together = false;
      this.sendSoon();
    }
  }

  /** As `run` without `shared`, for a call that other servers get, too. */
  runRequest(request: ScriptRequest, call: ScriptCall): void {
    if (this.underWay > 0 || this.calls.length > 0) return this.gather(undefined, request.keys, request.args, call);
    this.underWay = 1;
    if (!this.scripts.sendEncoded(request, call, this)) this.scripts.sendAlone({ request, call, batch: this });
  }

  /** Sends the calls of this turn that have been gathered, so that what is sent now comes after them. */
  sendGathered(): void {
    this.flush();
  }

  private gather(
    shared: string | undefined,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    call: ScriptCall,
    sharedKey?: string,
  ): void {
    if (this.shared !== shared || this.sharedKey !== sharedKey) this.flush();
    this.shared = shared;
    this.sharedKey = sharedKey;
    if (this.calls.length === 0 && shared !== undefined) this.args.push(shared);
    if (this.keysOfCalls !== 'numbered' || keys !== this.lastKeys) {
      this.lastKeys = keys;
      this.firstKey = this.keys.length + 1;
      for (const key of keys) this.keys.push(key);
    }
    if (this.keysOfCalls === 'numbered') this.args.push(this.firstKey);
    for (const arg of args) this.args.push(arg);
    this.calls.push(call);
    this.sendSoon();
  }

  /** Sends the gathered calls: now, or at the end of this turn while a run is under way. */
  private sendSoon(): void {
    if (this.calls.length >= MOST_CALLS || this.scripts.takesOneSlot) return this.flush();
    if (this.together) return;
    if (this.underWay === 0) this.flush();
    else if (!this.gathering) {
      this.gathering = true;
      setImmediate(this.endTurn);
    }
  }

  private flush(): void {
    const { keys, args, calls, shared, sharedKey } = this;
    if (calls.length === 0) return;
    this.keys = [];
    this.lastKeys = undefined;
    this.args = [];
    this.calls = [];
    this.underWay += 1;
    this.scripts.send(
      this.script,
      this.keysOfCalls === 'columns' ? inColumns(keys, calls.length, sharedKey) : keys,
      args,
      (reply) => {
        this.underWay -= 1;
        let replies: readonly unknown[];
        try {
          replies = calls.length === 1 ? [reply] : repliesOf(reply, calls.length);
        } catch (error) {
          for (const call of calls) call.fail(error);
          return;
        }
        for (let index = 0; index < calls.length; index++) {
          const answer = replies[index];
          if (answer instanceof Error) this.scripts.refused(answer);
          calls[index]?.settle(answer);
        }
      },
      (error: unknown) => {
        this.underWay -= 1;
        if (calls.length > 1 && this.scripts.refusesKeys(error)) this.sendEach(keys, args, calls, shared, sharedKey);
        else for (const call of calls) call.fail(error);
      },
    );
  }

  /** Sends the calls of a run that Redis has not begun, each alone. */
  private sendEach(
    keys: readonly string[],
    args: readonly ScriptArgument[],
    calls: readonly ScriptCall[],
    shared: string | undefined,
    sharedKey: string | undefined,
  ): void {
    const before = args.slice(0, shared === undefined ? 0 : 1);
    const length = (args.length - before.length) / calls.length;
    const firstKeys =
      this.keysOfCalls === 'numbered' && calls.map((_, index) => Number(args[before.length + index * length]));
    for (const [index, call] of calls.entries()) {
      const own = args.slice(before.length + index * length, before.length + (index + 1) * length);
      const [from, to] = firstKeys
        ? [firstKeys[index] as number, firstKeys.find((key) => key > (firstKeys[index] as number))]
        : [(index * keys.length) / calls.length + 1, ((index + 1) * keys.length) / calls.length + 1];
      if (firstKeys) own[0] = 1;
      this.underWay += 1;
      this.scripts.send(
        this.script,
        [...(sharedKey === undefined ? [] : [sharedKey]), ...keys.slice(from - 1, to && to - 1)],
        [...before, ...own],
        (reply) => {
          this.underWay -= 1;
          call.settle(reply);
        },
        (error) => {
          this.underWay -= 1;
          call.fail(error);
        },
      );
    }
  }
}

/** The shared key, if there is one, then the first keys of all calls, then the second ones, and so on. */
function inColumns(keys: readonly string[], calls: number, sharedKey: string | undefined): string[] {
  const columns = sharedKey === undefined ? [] : [sharedKey];
  const each = keys.length / calls;
  for (let place = 0; place < each; place++) {
    for (let at = place; at < keys.length; at += each) columns.push(keys[at] as string);
  }
  return columns;
}

const DECODED = { replyEncoding: 'utf8' } as const;
const AS_BYTES = {} as const;

export type ScriptArgument = string | number | Buffer;

/** What becomes of one call of a script: one of its functions is called, once. */
export interface ScriptCall {
  settle(reply: unknown): void;
  fail(error: unknown): void;
}

/** What stands before the usual parts, by their length. */
const BEFORE = Array.from({ length: 512 }, (_, length) => headOf(length));
const END = '\r\n';

/** A call of a script, for one server or several. */
export interface ScriptRequest {
  readonly script: RedisScript;
  readonly keys: readonly string[];
  readonly args: readonly ScriptArgument[];
  /** What a call that is not one of several in one run of the script may have instead of `args`. */
  readonly aloneArgs?: readonly ScriptArgument[];
  /** Set when it is first sent alone: it is encoded once for all servers. `null` where an argument is bytes. */
  encoded?: EncodedCall | null;
}

/** A call as it is sent, but for its id. */
interface EncodedCall {
  readonly parts: readonly string[];
  readonly text: string;
}

/** What has runs of a script under way. */
export interface RunCounter {
  underWay: number;
}

/** A call on its way to one server: an object rather than functions, as every lock takes this path. */
export interface SentCall {
  readonly request: ScriptRequest;
  readonly call: ScriptCall;
  /** Whose run it is; such a call is sent again while the server refuses it for now. */
  readonly batch: RunCounter | undefined;
  /** In ASCII. */
  readonly id: string;
}

/** Gets what the server says to calls that were sent. */
interface ReplyReader {
  settled(sent: SentCall, reply: unknown): void;
  rejected(sent: SentCall, error: unknown): void;
}

/** Encodes a call; `null` where an argument is bytes. */
export function encodedCall({ script, keys, args, aloneArgs = args }: ScriptRequest): EncodedCall | null {
  const parts = [script.sha1, String(keys.length), ...keys];
  for (const arg of aloneArgs) {
    if (typeof arg === 'object') return null;
    parts.push(String(arg));
  }
  const begin = `*${parts.length + 2}${script.encoded}`;
  let text = begin;
  for (let i = 1; i < parts.length; i++) {
    const { length } = parts[i] as string;
    text += (BEFORE[length] ?? headOf(length)) + parts[i];
  }
  // Asking for the length in bytes is slow: once for the whole text is enough where it is ASCII.
  if (Buffer.byteLength(text) !== text.length) {
    text = begin;
    for (let i = 1; i < parts.length; i++) text += headOf(Buffer.byteLength(parts[i] as string)) + parts[i];
  }
  return { parts, text };
}

/** What stands before a part of this length in bytes: the end of the part before it, and its own length. */
function headOf(length: number): string {
  return `\r\n$${length}\r\n`;
}

/** A client that takes commands which are encoded already, and their class. */
export interface EncodingClient {
  readonly client: Redis;
  readonly Command: EncodedCommandClass;
}

/** `undefined` where the client does not send commands as they are. */
export function encodingClient(client: RedisClient): EncodingClient | undefined {
  if (client.library !== undefined || client.isCluster) return undefined;
  const library = installedIoredis();
  if (!library || !(client instanceof library.Redis)) return undefined;
  const { keyPrefix, enableAutoPipelining, showFriendlyErrorStack } = client.options;
  if (keyPrefix || enableAutoPipelining || showFriendlyErrorStack) return undefined;
  return { client, Command: (CommandClass ??= encodedCommandClass(library.Command)) };
}

type EncodedCommandClass = new (encoded: EncodedCall, sent: SentCall, reader: ReplyReader) => Command;

let CommandClass: EncodedCommandClass | undefined;

/**
 * The class of the commands, made at first use because it extends one of ioredis. A command makes no promise for its
 * reply: with `AsyncLocalStorage`, each promise on the path of every lock costs time.
 */
export function encodedCommandClass(CommandOfClient: typeof Command): EncodedCommandClass {
  return class EncodedCommand extends CommandOfClient {
    private readonly text: string;

    constructor(
      { parts, text }: EncodedCall,
      /** Until the reply: the client may keep the command for longer than what waits for it. */
      private sent: SentCall | undefined,
      reader: ReplyReader,
    ) {
      const { request, id } = sent as SentCall;
      super('evalsha', [], request.script.bytes ? AS_BYTES : DECODED);
      // For those who look at the commands of a client; the constructor would encode each of them again.
      this.args = [...parts, id];
      this.text = text + (BEFORE[id.length] as string) + id + END;
      const { resolve, reject } = this;
      this.resolve = (reply) => {
        resolve(reply);
        const { sent: answered } = this;
        this.sent = undefined;
        try {
          if (answered) reader.settled(answered, this.transformReply(reply as Buffer));
        } catch (error) {
          // Not here: the client would lose its place among the replies, and give the next ones to other commands.
          queueMicrotask(() => {
            throw error;
          });
        }
      };
      this.reject = (reason) => {
        reject(reason);
        // Later: the client may refuse the command while it is being sent.
        this.promise.catch((error: unknown) => {
          const { sent: failed } = this;
          this.sent = undefined;
          if (failed) reader.rejected(failed, error);
        });
      };
    }

    override toWritable(): string {
      return this.text;
    }
  };
}
