import { RefusedForNow } from './refused-for-now.js';
import type { RedisClient } from './redis-client.js';
import type { RedisScript } from './scripts/redis-script.js';
import type { SilenceGuard } from './silence-guard.js';

export type ScriptArgument = string | number | Buffer;

const DISCONNECT_EVENTS = ['close', '-node', 'node error'] as const;

/** Runs scripts on a client. */
export class ScriptRunner {
  private disconnectCount = 0;
  private readonly countDisconnect = () => {
    this.disconnectCount += 1;
  };

  constructor(
    readonly client: RedisClient,
    private readonly guard?: SilenceGuard,
  ) {
    for (const event of DISCONNECT_EVENTS) client.on(event, this.countDisconnect);
  }

  /** Grows whenever a connection ends: ioredis then resends what was not answered. */
  get disconnects(): number {
    return this.disconnectCount;
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

  send(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
  ): void {
    this.sendOnce(script, keys, args, answered, (error) => {
      if (!RefusedForNow.is(error)) return failed(error);
      new RefusedForNow((refused) => this.sendOnce(script, keys, args, answered, refused), failed).again(error);
    });
  }

  private sendOnce(
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
    answered: (reply: unknown) => void,
    failed: (error: unknown) => void,
  ): void {
    this.ask(this.client.evalsha(script.sha1, keys.length, ...keys, ...args), answered, (error) => {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) return failed(error);
      this.ask(this.client.eval(script.lua, keys.length, ...keys, ...args), answered, failed);
    });
  }

  /** For a command that was sent to the client: watches over its answer. */
  ask<T>(command: Promise<T>, answered: (reply: T) => void, failed: (error: unknown) => void): void {
    this.guard?.asked();
    command.then(
      (reply) => {
        this.guard?.answered();
        answered(reply);
      },
      (error: unknown) => {
        this.guard?.answered();
        failed(error);
      },
    );
  }

  close(): void {
    this.guard?.close();
    for (const event of DISCONNECT_EVENTS) this.client.off(event, this.countDisconnect);
  }
}
