import type { Redis } from 'ioredis';
import type { Notice, StartRequest } from '../../contracts/start-request.js';
import { createRedisClient, type RedisClient } from './redis-client.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import { ScriptRunner } from './scripting/script-runner.js';
import { SilenceGuard } from './connection/silence-guard.js';
import { isRedisClient, requireRedisConnection, type ConnectionOption } from './connection/connection-options.js';
import { ConnectionState, type RedisFailure } from './connection/connection-state.js';
import { PrimarySeeker } from './connection/primary-seeker.js';
import { queuesForLong, ReadyQueue } from './connection/ready-queue.js';

/** What a link and those who use it listen to one event of a client with, at most. */
const LISTENERS = 6;

/**
 * A client of the user's, which stays open, or one of our own, which is watched for silence and closed; with what runs
 * scripts on it, and what is known of its connection.
 */
export class RedisLink {
  readonly client: RedisClient;
  readonly scripts: ScriptRunner;
  private readonly own: boolean;
  private readonly state: ConnectionState;
  private readonly queue: ReadyQueue | undefined;
  private readonly reports = new Set<(notice: Notice) => void>();

  /** @throws the option's ConfigError for what is no connection */
  constructor(connection: RedisConnection, option: ConnectionOption) {
    requireRedisConnection(option, connection);
    this.own = !isRedisClient(connection);
    const client = isRedisClient(connection) ? connection : createRedisClient(connection);
    allowListeners(client, LISTENERS);
    this.client = client;
    this.state = new ConnectionState(client, this.own);
    this.queue = queuesForLong(client) ? new ReadyQueue(client, () => this.diagnose()) : undefined;
    this.scripts = new ScriptRunner(client, {
      ...(this.own && { guard: new SilenceGuard((why) => (client as Redis).stream?.destroy(why)) }),
      ...(this.queue && { queue: this.queue }),
      seeker: new PrimarySeeker(client, (notice) => this.report(notice)),
    });
  }

  start({ commandTimeout, report }: StartRequest): void {
    this.reports.add(report);
    if (this.queue) this.queue.patience = Math.max(commandTimeout, this.reports.size === 1 ? 0 : this.queue.patience);
  }

  /** To every module that uses this. */
  report(notice: Notice): void {
    for (const report of this.reports) report(notice);
  }

  /** Why a call failed with `error`, or was not answered. */
  diagnose(error?: unknown): RedisFailure {
    return this.state.diagnose(error);
  }

  close(): void {
    this.queue?.close();
    this.scripts.close();
    this.state.close();
    allowListeners(this.client, -LISTENERS);
    if (this.own) this.client.disconnect();
  }
}

/** Node.js warns of a leak where more listen than are allowed; several modules may share one client. */
function allowListeners(client: RedisClient, more: number): void {
  const most = client.getMaxListeners();
  if (most > 0 && most !== Infinity) client.setMaxListeners(most + more);
}
