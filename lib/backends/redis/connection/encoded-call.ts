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
    text += (BEFORE[length] ?? before(length)) + parts[i];
  }
  // Asking for the length in bytes is slow: once for the whole text is enough where it is ASCII.
  if (Buffer.byteLength(text) !== text.length) {
    text = begin;
    for (let i = 1; i < parts.length; i++) text += before(Buffer.byteLength(parts[i] as string)) + parts[i];
  }
  return { parts, text };
}

/** What stands before a part of this length in bytes: the end of the part before it, and its own length. */
function before(length: number): string {
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
