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

/** A call of a script, encoded once for all servers that it goes to. */
export class EncodedCall {
  private parts: string[] | undefined;
  private text = '';

  constructor(
    readonly script: RedisScript,
    readonly keys: readonly string[],
    readonly args: readonly (string | number)[],
    /** What a call that is not one of several in one run of the script may have instead of `args`. */
    private readonly aloneArgs = args,
  ) {}

  /** The command for one of the servers, which settles `call`. */
  command(call: ScriptCall): Command {
    this.parts ??= this.encode();
    CommandClass ??= encodedCommandClass();
    return new CommandClass(this.parts, this.text, call, this.script.bytes);
  }

  private encode(): string[] {
    const { script, keys, aloneArgs } = this;
    const parts = [script.sha1, String(keys.length)];
    for (const key of keys) parts.push(key);
    for (const arg of aloneArgs) parts.push(String(arg));
    const begin = `*${parts.length + 1}\r\n${script.encoded}`;
    // Asking for the length in bytes is slow: once for the whole text is enough where it is ASCII.
    const text = begin + textOf(parts, { ascii: true });
    this.text = Buffer.byteLength(text) === text.length ? text : begin + textOf(parts, { ascii: false });
    return parts;
  }
}

/** Whether a call with these arguments can be encoded. */
export function isText(args: readonly ScriptArgument[]): args is readonly (string | number)[] {
  for (const arg of args) if (typeof arg === 'object') return false;
  return true;
}

/** The parts after the digest. */
function textOf(parts: readonly string[], { ascii }: { readonly ascii: boolean }): string {
  let text = '';
  for (let i = 1; i < parts.length; i++) {
    const part = parts[i] as string;
    text += `$${ascii ? part.length : Buffer.byteLength(part)}\r\n${part}\r\n`;
  }
  return text;
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
      private call: ScriptCall | undefined,
      bytes: boolean,
    ) {
      super('evalsha', [], bytes ? AS_BYTES : DECODED);
      // For those who look at the commands of a client; the constructor would encode each of them again.
      this.args = parts;
      const { resolve, reject } = this;
      this.resolve = (reply) => {
        resolve(reply);
        try {
          this.takeCall()?.settle(this.transformReply(reply as Buffer));
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
        this.promise.catch((error: unknown) => this.takeCall()?.fail(error));
      };
    }

    override toWritable(): string {
      return this.text;
    }

    /** The client may keep the command for longer than what waits for its reply. */
    private takeCall(): ScriptCall | undefined {
      const { call } = this;
      this.call = undefined;
      return call;
    }
  };
}
