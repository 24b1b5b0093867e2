import type { PrimarySeeker } from '../connection/primary-seeker.js';
import type { ReadyQueue } from '../connection/ready-queue.js';
import { withoutAutoPipelining } from './without-auto-pipelining.js';
import type { RedisClient } from '../redis-client.js';
import { RefusedForNow } from './refused-for-now.js';
import type { RedisScript } from './redis-script.js';
import type { SilenceGuard } from '../connection/silence-guard.js';

export type ScriptArgument = string | number | Buffer;

const QUEUED =
  'the client queues commands for a MULTI that other code began with { pipeline: false }; ' +
  'give locks and cache a client of their own, such as client.duplicate()';

const CONNECT_EVENTS = ['ready', '+node'] as const;
const DISCONNECT_EVENTS = ['close', '-node', 'node error'] as const;

/** What looks after the connection of a client. */
export interface ConnectionCare {
  readonly guard?: SilenceGuard;
  readonly queue?: ReadyQueue;
  readonly seeker?: PrimarySeeker;
}

/** Sends scripts and commands on a client. */
export class ScriptRunner {
  private disconnectCount = 0;
  private readonly connectListeners = new Set<() => void>();
  private readonly guard: SilenceGuard | undefined;
  private readonly scriptClient: RedisClient;
  private readonly countDisconnect = () => {
    this.disconnectCount += 1;
  };

  constructor(
    readonly client: RedisClient,
    private readonly care: ConnectionCare = {},
  ) {
    this.guard = care.guard;
    this.scriptClient = withoutAutoPipelining(client);
    for (const event of DISCONNECT_EVENTS) client.on(event, this.countDisconnect);
  }

  /** Grows with each lost connection: ioredis then resends the commands that have no answer yet. */
  get disconnects(): number {
    return this.disconnectCount;
  }

  /** Calls `listener` for each new connection, in a Cluster for that to each node. */
  /** Returns what takes the listener off again. */
  whenConnected(listener: () => void): () => void {
    this.connectListeners.add(listener);
    for (const event of CONNECT_EVENTS) this.client.on(event, listener);
    return () => {
      this.connectListeners.delete(listener);
      for (const event of CONNECT_EVENTS) this.client.off(event, listener);
    };
  }

  run(script: RedisScript, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.send(script, keys, args, resolve, reject);
    });
  }

  /** As `run`, for a script that answers one string: resolves to its bytes. */
  runForBytes(script: RedisScript, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.send(script, keys, args, resolve, reject, true);
    });
  }

  send(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
    bytes = false,
  ): void {
    this.sendOnce(
      script,
      keys,
      args,
      answered,
      (error) => {
        if (!RefusedForNow.is(error)) return failed(error);
        new RefusedForNow((refused) => this.sendOnce(script, keys, args, answered, refused, bytes), failed).again(
          error,
        );
      },
      bytes,
    );
  }

  private sendOnce(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
    bytes: boolean,
  ): void {
    const { scriptClient: client } = this;
    if (
      this.client.status !== 'ready' &&
      this.defers(() => this.sendOnce(script, keys, args, answered, failed, bytes), failed)
    ) {
      return;
    }
    const sent = bytes
      ? client.callBuffer('EVALSHA', [script.sha1, keys.length, ...keys, ...args])
      : client.evalsha(script.sha1, keys.length, ...keys, ...args);
    this.ask(sent, answered, (error) => {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) return failed(error);
      const whole = bytes
        ? client.callBuffer('EVAL', [script.lua, keys.length, ...keys, ...args])
        : client.eval(script.lua, keys.length, ...keys, ...args);
      this.ask(whole, answered, failed);
    });
  }

  /**
   * Sends one command, on the client or on a node of its Cluster, as soon as there is a connection; sends it again while
   * the server refuses it for now.
   */
  command<T>(send: (client: RedisClient) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const ask = (failed: (error: unknown) => void) => {
        if (this.client.status !== 'ready' && this.defers(() => ask(failed), failed)) return;
        this.ask(send(this.client), resolve, failed);
      };
      ask((error) => {
        if (RefusedForNow.is(error)) new RefusedForNow(ask, reject).again(error);
        else reject(error);
      });
    });
  }

  /** For a call that finds the client not ready: whether it waits in the `ReadyQueue`, which sends or fails it later. */
  defers(send: () => void, failed: (error: unknown) => void): boolean {
    return this.care.queue?.take(send, failed) ?? false;
  }

  /** Waits for the answer to a command that was sent, and looks after the connection meanwhile. */
  ask<T>(command: Promise<T>, answered: (reply: T) => void, failed: (error: unknown) => void): void {
    this.guard?.asked();
    command.then(
      (reply) => {
        this.guard?.answered();
        if (reply === 'QUEUED') failed(new Error(QUEUED));
        else answered(reply);
      },
      (error: unknown) => {
        this.guard?.answered();
        if (error instanceof Error) this.refused(error);
        failed(error);
      },
    );
  }

  /** Takes note of an error that Redis answered, also as a part of a reply. */
  refused(error: Error): void {
    this.care.seeker?.answered(error);
  }

  close(): void {
    this.guard?.close();
    for (const event of DISCONNECT_EVENTS) this.client.off(event, this.countDisconnect);
    for (const listener of this.connectListeners) {
      for (const event of CONNECT_EVENTS) this.client.off(event, listener);
    }
  }
}
