import type { Command, Redis } from 'ioredis';
import { installedIoredis } from './ioredis.js';
import type { RedisClient } from './redis-client.js';
import type { RedisScript } from './redis-script.js';

const DECODED = { replyEncoding: 'utf8' } as const;
const AS_BYTES = {} as const;

export type ScriptArgument = string | number | Buffer;

/** What becomes of one call of a script: one of its functions is called, once. */
export interface ScriptCall {
  settle(reply: unknown): void;
  fail(error: unknown): void;
}

/** What stands before the usual parts, by their length. */
const BEFORE = Array.from({ length: 512 }, (_, length) => before(length));
const END = '\r\n';

/** A call of a script, encoded once for all servers that it goes to. */
export class EncodedCall {
  /** All but the id; `null` where an argument is bytes. */
  private parts: string[] | null | undefined;
  private text = '';

  constructor(
    readonly script: RedisScript,
    readonly keys: readonly string[],
    readonly args: readonly ScriptArgument[],
    /** What a call that is not one of several in one run of the script may have instead of `args`. */
    private readonly aloneArgs = args,
  ) {}

  /** The command for one of the servers, which settles `call`; `id` is ASCII. `null` where an argument is bytes. */
  command(call: ScriptCall, id: string): Command | null {
    if (this.parts === undefined) this.encode();
    const { parts, script } = this;
    if (!parts) return null;
    CommandClass ??= encodedCommandClass();
    return new CommandClass([...parts, id], this.text + (BEFORE[id.length] as string) + id + END, call, script.bytes);
  }

  private encode(): void {
    const { script, keys, aloneArgs } = this;
    const parts = [script.sha1, String(keys.length), ...keys];
    for (const arg of aloneArgs) {
      if (typeof arg === 'object') {
        this.parts = null;
        return;
      }
      parts.push(String(arg));
    }
    this.parts = parts;
    const begin = `*${parts.length + 2}${script.encoded}`;
    let text = begin;
    for (let i = 1; i < parts.length; i++) {
      const { length } = parts[i] as string;
      text += (BEFORE[length] ?? before(length)) + parts[i];
    }
    // Asking for the length in bytes is slow: once for the whole text is enough where it is ASCII.
    if (Buffer.byteLength(text) !== text.length) {
      text = begin;
      for (let i = 1; i < parts.length; i++) text += before(Buffer.byteLength(parts[i] as string)) + parts[i];
    }
    this.text = text;
  }
}

/** What stands before a part of this length in bytes: the end of the part before it, and its own length. */
function before(length: number): string {
  return `\r\n$${length}\r\n`;
}

/** Whether the client sends commands as they are, so that it can send one that is encoded already. */
export function sendsEncoded(client: RedisClient): client is RedisClient & Redis {
  if (client.library !== undefined || client.isCluster) return false;
  const library = installedIoredis();
  if (!library || !(client instanceof library.Redis)) return false;
  const { keyPrefix, enableAutoPipelining, showFriendlyErrorStack } = client.options;
  return !keyPrefix && !enableAutoPipelining && !showFriendlyErrorStack;
}

let CommandClass: ReturnType<typeof encodedCommandClass> | undefined;

/**
 * The class of the commands, made at first use because it extends one of ioredis. A command makes no promise for its
 * reply: with `AsyncLocalStorage`, each promise on the path of every lock costs time.
 */
function encodedCommandClass() {
  const library = installedIoredis();
  if (!library) throw new Error('ioredis is not installed, although a client of it is in use');
  return class EncodedCommand extends library.Command {
    constructor(
      parts: string[],
      private readonly text: string,
      /** Until the reply: the client may keep the command for longer than what waits for it. */
      private call: ScriptCall | undefined,
      bytes: boolean,
    ) {
      super('evalsha', [], bytes ? AS_BYTES : DECODED);
      // For those who look at the commands of a client; the constructor would encode each of them again.
      this.args = parts;
      const { resolve, reject } = this;
      this.resolve = (reply) => {
        resolve(reply);
        const { call: answered } = this;
        this.call = undefined;
        try {
          answered?.settle(this.transformReply(reply as Buffer));
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
          const { call: failed } = this;
          this.call = undefined;
          failed?.fail(error);
        });
      };
    }

    override toWritable(): string {
      return this.text;
    }
  };
}
