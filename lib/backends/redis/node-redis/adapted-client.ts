import { allowListeners } from '../connection/allow-listeners.js';
import { ReadyQueue } from '../connection/ready-queue.js';
import { AdaptedCommands } from './adapted-commands.js';
import type { NodeRedisConnection } from '../../../options/redis-connection.js';
import { keyPrefixOf, type CommandArgument, type SendOptions } from './node-redis-clients.js';
import { isReplyError, lastRedirection, named } from './reply-errors.js';

/** The byte with which RESP marks a bulk string. */
const BULK_STRING = 0x24;
/** These replace the type mapping that the application set for its client. */
const TEXT = {};
const BYTES = { [BULK_STRING]: Buffer };

export function sendOptions(bytes = false, timeout: number | undefined): SendOptions {
  return { typeMapping: bytes ? BYTES : TEXT, timeout };
}

/** The listeners of this class. An `error` of node-redis without a listener ends the process. */
const ours = new WeakSet<object>();

/**
 * A client of node-redis in the form of ioredis: its commands, its events and its states. Commands that a lost
 * connection left without an answer are sent once more on the next one, as ioredis does.
 */
export abstract class AdaptedClient extends AdaptedCommands {
  private readonly unanswered: ReadyQueue;
  private readonly detachments: (() => void)[] = [];

  readonly library = 'node-redis';

  constructor(private readonly connection: NodeRedisConnection) {
    super(keyPrefixOf(connection));
    this.detachments.push(allowListeners(connection, 1));
    this.unanswered = new ReadyQueue(this, () => new Error('The connection was lost before Redis answered'));
  }

  abstract get isCluster(): boolean;
  protected abstract get isReady(): boolean;
  /** How long (ms) node-redis keeps a command that it cannot send; `undefined` while `status` covers that. */
  protected abstract readonly patience: number | undefined;
  protected abstract readonly resends: boolean;
  protected abstract deliver(
    key: string | undefined,
    args: readonly CommandArgument[],
    options: SendOptions,
  ): Promise<unknown>;

  get status(): 'ready' | 'connecting' | 'end' {
    if (this.isReady) return 'ready';
    return this.connection.isOpen ? 'connecting' : 'end';
  }

  /** Lets go of the client, which stays open. */
  disconnect(): void {
    this.unanswered.close();
    for (const detach of this.detachments) detach();
  }

  protected override async send(
    key: string | undefined,
    args: readonly CommandArgument[],
    bytes = false,
  ): Promise<unknown> {
    const options = sendOptions(bytes, this.patience);
    try {
      return await this.deliver(key, args, options);
    } catch (error) {
      if (isReplyError(error) || !this.resends) throw named(error);
      const redirected = lastRedirection(error);
      if (redirected) throw redirected;
      await this.whenReadyAgain();
      return await this.deliver(key, args, options).catch((again: unknown) => Promise.reject(named(again)));
    }
  }

  /** Calls `listener` for an event of the client until `disconnect`. */
  protected hear(event: string, listener: Parameters<NodeRedisConnection['on']>[1]): void {
    ours.add(listener);
    this.connection.on(event, listener);
    this.detachments.push(() => this.connection.off(event, listener));
  }

  /** Passes an error on. Prints it where the application has no listener, as ioredis does. */
  protected report(error: Error): void {
    if (this.connection.listeners('error').every((listener) => ours.has(listener)))
      console.error('[node-redis] Unhandled error event:', error.stack);
    // Without a listener, `emit` would throw the error.
    if (this.listenerCount('error') > 0) this.emit('error', error);
  }

  private whenReadyAgain(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (!this.unanswered.take(resolve, reject)) resolve();
    });
  }
}
