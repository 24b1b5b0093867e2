import type { Redis } from 'ioredis';
import type { StartRequest } from '../../../contracts/store.js';
import type { RedisClient } from './redis-client.js';
import { allowListeners, createRedisClient } from './own-client.js';
import { adviceOn, SilenceGuard } from './silence-guard.js';
import type { RedisConnection } from '../../../options/redis-connection.js';
import { Reporters } from '../../reporters.js';
import { MIXED_UP, ScriptRunner, type ConnectionCare } from './script-runner.js';
import { isRedisClient, requireRedisConnection, serverOf } from './connection-options.js';
import type { ConnectionOption } from './ioredis.js';
import { ConnectionState, type RedisFailure } from './connection-state.js';
import { PrimarySeeker, queuesForLong, ReadyQueue, refusesUnconnected } from './ready-queue.js';
import { adapted } from './adapted-servers.js';
import { isNodeRedis } from './node-redis-clients.js';

/** How many listeners for one event of a client a link and its users need at most. */
const LISTENERS = 6;

/**
 * A client of the application, which stays open, or one of our own, which is closed; together with the runner of its
 * scripts, the state of its connection and the guard against its silence.
 */
export class RedisLink {
  readonly client: RedisClient;
  readonly scripts: ScriptRunner;
  readonly reporters = new Reporters();
  /** Whether the client is one that this link made: from options, or as an adapter. */
  private readonly ours: boolean;
  private readonly state: ConnectionState;
  private readonly queue?: ReadyQueue;
  private readonly guard: SilenceGuard;
  private readonly lowerLimit: () => void;
  private advised = false;
  private closed = false;

  /** @throws the option's ConfigError for a value that is not a connection */
  constructor(
    connection: RedisConnection,
    option: ConnectionOption,
    { persists }: Pick<ConnectionCare, 'persists'> = {},
  ) {
    requireRedisConnection(option, connection);
    const { client, own } = clientOf(connection, option);
    this.lowerLimit = allowListeners(client, LISTENERS);
    this.client = client;
    this.ours = client !== connection;
    this.state = new ConnectionState(client, own !== undefined);
    const refuses = refusesUnconnected(client);
    if (refuses || queuesForLong(client)) this.queue = new ReadyQueue(client, () => this.diagnose(), refuses);
    this.scripts = new ScriptRunner(client, {
      ...(this.queue && { queue: this.queue }),
      ...(persists !== undefined && { persists }),
      seeker: new PrimarySeeker(client, this.reporters.report),
      onMixedUp: () => this.replaceMixedUp(),
    });
    this.guard = new SilenceGuard(this.scripts);
  }

  start(request: StartRequest): void {
    this.reporters.add(request);
    const others = this.reporters.count > 1;
    const advice = this.advised ? undefined : adviceOn(this.client);
    this.advised = true;
    if (advice !== undefined) request.report({ level: 'warn', message: advice });
    if (this.queue) this.queue.patience = Math.max(request.commandTimeout, others ? this.queue.patience : 0);
  }

  /** Says why a call failed with `error`, or got no answer. */
  diagnose(error?: unknown): RedisFailure {
    return this.state.diagnose(error ?? this.scripts.refusedForNow);
  }

  private replaceMixedUp(): void {
    const server = serverOf(this.client);
    const replaced = this.guard.replaceAll(new Error(`${server} mixed up its replies`));
    const then = replaced ? 'the connection is replaced' : 'its client does not reconnect: connect it anew';
    this.reporters.report({ level: 'warn', message: `${server}: ${MIXED_UP}; ${then}` });
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.queue?.close();
    this.guard.close();
    this.scripts.close();
    this.state.close();
    this.lowerLimit();
    if (this.ours) this.client.disconnect();
  }
}

/** The client for a connection; `own` where it is one that the library made and closes. */
function clientOf(
  connection: RedisConnection,
  option: ConnectionOption,
): { readonly client: RedisClient; readonly own?: Redis } {
  if (isRedisClient(connection)) return { client: connection };
  if (isNodeRedis(connection)) return { client: adapted(connection) };
  const own = createRedisClient(connection, option);
  return { client: own, own };
}
