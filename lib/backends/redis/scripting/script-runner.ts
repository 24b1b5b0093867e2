import type { PrimarySeeker } from '../connection/primary-seeker.js';
import type { ReadyQueue } from '../connection/ready-queue.js';
import { withoutAutoPipelining } from '../connection/without-auto-pipelining.js';
import type { RedisClient } from '../redis-client.js';
import { RefusedForNow } from './refused-for-now.js';
import type { RedisScript } from './redis-script.js';
import type { SilenceGuard } from '../messages/silence-guard.js';

export type ScriptArgument = string | number | Buffer;

const QUEUED =
  'the client is inside of a MULTI that its owner has begun with { pipeline: false }, and queues what is sent; give locks and cache ' +
  'a client of their own, such as client.duplicate()';

const CONNECT_EVENTS = ['ready', '+node'] as const;
const DISCONNECT_EVENTS = ['close', '-node', 'node error'] as const;

/** What else a connection may need. */
export interface ConnectionCare {
  readonly guard?: SilenceGuard;
  readonly queue?: ReadyQueue;
  readonly seeker?: PrimarySeeker;
}

/** Runs scripts on a client. */
export class ScriptRunner {
  private disconnectCount = 0;
  private readonly connectListeners: (() => void)[] = [];
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

  /** Grows whenever a connection ends: ioredis then resends what was not answered. */
  get disconnects(): number {
    return this.disconnectCount;
  }

  /** Calls `listener` whenever a connection is there, also one of a Cluster to a node. */
  whenConnected(listener: () => void): void {
    this.connectListeners.push(listener);
    for (const event of CONNECT_EVENTS) this.client.on(event, listener);
  }

  /** What scripts are told of PUBLISH: in a Cluster its answer counts the subscribers of one node only. */
  get counted(): 0 | 1 {
    return this.client.isCluster ? 0 : 1;
  }

  run(script: RedisScript, keys: readonly string[], args: readonly ScriptArgument[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.send(script, keys, args, resolve, reject);
    });
  }

  /** As `run`, for a script that answers one string, which is not taken for text. */
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

  /** One command, sent as soon as there is a connection. */
  command<T>(send: (client: RedisClient) => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const ask = () => this.ask(send(this.client), resolve, reject);
      if (this.client.status === 'ready' || !this.defers(ask, reject)) ask();
    });
  }

  /**
   * For a call that finds the client not ready: whether `send` waits here, as the client would keep the call for long.
   */
  defers(send: () => void, failed: (error: unknown) => void): boolean {
    return this.care.queue?.take(send, failed) ?? false;
  }

  /** For a command that was sent to the client: watches over its answer. */
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

  /** For an error that Redis answered, also as a part of a reply. */
  refused(error: Error): void {
    this.care.seeker?.answered(error);
  }

  close(): void {
    this.guard?.close();
    for (const event of DISCONNECT_EVENTS) this.client.off(event, this.countDisconnect);
    for (const listener of this.connectListeners.splice(0)) {
      for (const event of CONNECT_EVENTS) this.client.off(event, listener);
    }
  }
}
