import type { Redis, RedisOptions } from 'ioredis';
import type { StoreContext } from '../../../contracts/store.js';
import type { RedisClient } from './redis-client.js';
import { allowListeners, createRedisClient } from './own-client.js';
import { adviceOn, SilenceGuard } from './silence-guard.js';
import type { RedisConnection } from '../../../options/redis-connection.js';
import { Listeners } from '../../listeners.js';
import { MIXED_UP, ScriptRunner, type ConnectionCare } from './script-runner.js';
import { isRedisClient, requireRedisConnection, serverOf } from './connection-options.js';
import type { ConnectionOption } from './ioredis.js';
import { ConnectionState, type RedisFailure } from './connection-state.js';
import { PrimarySeeker, queuesForLong, ReadyQueue, refusesUnconnected } from './ready-queue.js';
import { adapted } from './adapted-servers.js';
import { isNodeRedis } from './node-redis-clients.js';

/** How many listeners for one event of a client a link and its users need at most. */
const LISTENERS = 7;

/**
 * A client of the application, which stays open, or one of our own, which is closed; together with the runner of its
 * scripts, the state of its connection and the guard against its silence.
 */
export class RedisLink {
  readonly client: RedisClient;
  readonly scripts: ScriptRunner;
  readonly listeners = new Listeners();
  /** Whether the client is one that this link made: from options, or as an adapter. */
  private readonly ours: boolean;
  private readonly state: ConnectionState;
  private readonly queue?: ReadyQueue;
  private readonly guard: SilenceGuard;
  private readonly lowerLimit: () => void;
  private wasConnected: boolean;
  private spare: SpareLink | undefined;
  private started = false;
  private closed = false;

  /**
   * `holds`: whether the application gives back over it what it holds, also where it has ended its client.
   * @throws the option's ConfigError for a value that is not a connection
   */
  constructor(
    connection: RedisConnection,
    option: ConnectionOption,
    { persists, holds = true }: Pick<ConnectionCare, 'persists'> & { readonly holds?: boolean } = {},
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
      seeker: new PrimarySeeker(client, this.listeners.report),
      onMixedUp: () => this.replaceMixedUp(),
      ...(holds && own === undefined && { spare: () => this.spareOf(connection as ApplicationClient, option) }),
    });
    this.guard = new SilenceGuard(this.scripts);
    this.wasConnected = client.status === 'ready';
    this.scripts.whenConnected(() => {
      this.wasConnected = true;
      this.listeners.connected();
    });
  }

  /** A store of a module starts on it. */
  start({ report, commandTimeout }: StoreContext): void {
    const advice = this.started ? undefined : adviceOn(this.client);
    if (advice !== undefined) report({ level: 'warn', message: advice });
    if (this.queue) this.queue.patience = Math.max(commandTimeout, this.started ? this.queue.patience : 0);
    this.started = true;
  }

  /** Says why a call failed with `error`, or got no answer. */
  diagnose(error?: unknown): RedisFailure {
    return this.state.diagnose(error ?? this.scripts.refusedForNow);
  }

  private replaceMixedUp(): void {
    const server = serverOf(this.client);
    const replaced = this.guard.replaceAll(new Error(`${server} mixed up its replies`));
    const then = replaced ? 'the connection is replaced' : 'its client does not reconnect: connect it anew';
    this.listeners.report({ level: 'warn', message: `${server}: ${MIXED_UP}; ${then}` });
  }

  /** Whatever ended its client, what the application holds must be given back, and must be renewed until then. */
  private spareOf(client: ApplicationClient, option: ConnectionOption): SpareLink | undefined {
    if (this.closed || this.client.status !== 'end' || !this.wasConnected) return undefined;
    return (this.spare ??= new SpareLink(client, option));
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.spare?.close();
    this.queue?.close();
    this.guard.close();
    this.scripts.close();
    this.state.close();
    this.lowerLimit();
    if (this.ours) this.client.disconnect();
  }
}

/** A client of ioredis or node-redis, of a server or a Cluster. */
type ApplicationClient = Exclude<RedisConnection, string | RedisOptions>;

/** How long (ms) the connection stays open that nobody uses. */
const IDLE = 1_000;

/** A connection of our own to where a client of the application led, open while scripts are sent on it. */
class SpareLink {
  private open: { readonly link: RedisLink; readonly end: () => void } | undefined;
  private underWay = 0;
  private idle: NodeJS.Timeout | undefined;

  constructor(
    private readonly client: ApplicationClient,
    private readonly option: ConnectionOption,
  ) {}

  readonly send: ScriptRunner['send'] = (script, keys, args, answered, failed) => {
    clearTimeout(this.idle);
    // It may have ended as the client of the application did: with the retries that its options have.
    if (this.open?.link.client.status === 'end') this.close();
    try {
      this.open ??= opened(this.client, this.option);
    } catch (error) {
      // The application gave what is no whole client.
      return failed(error);
    }
    this.underWay += 1;
    const settled = <T>(tell: (outcome: T) => void) => {
      return (outcome: T) => {
        this.underWay -= 1;
        if (this.underWay === 0 && this.open) this.idle = setTimeout(() => this.close(), IDLE).unref();
        tell(outcome);
      };
    };
    this.open.link.scripts.send(script, keys, args, settled(answered), settled(failed));
  };

  close(): void {
    clearTimeout(this.idle);
    const { open } = this;
    this.open = undefined;
    open?.link.close();
    open?.end();
  }
}

function opened(client: ApplicationClient, option: ConnectionOption) {
  const copy = (client as Copied).duplicate();
  copy.on('error', () => {});
  const link = new RedisLink(copy, option, { holds: false });
  if (isNodeRedis(copy) || link.client.status === 'wait') copy.connect().catch(() => {});
  return { link, end: () => (isNodeRedis(copy) ? copy.destroy() : copy.disconnect()) };
}

type Copied = ApplicationClient & { duplicate(): ApplicationClient & { connect(): Promise<unknown> } };

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
