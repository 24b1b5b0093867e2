import { randomUUID } from 'node:crypto';
import type { RedisOptions } from 'ioredis';
import type { Notice } from '../../../contracts/store.js';
import { serverOf } from './connection-options.js';
import { remedyClause } from '../../failures.js';
import { REMEDIES } from './connection-state.js';
import { reconnectDelay } from './own-client.js';
import {
  isCluster,
  type RedisClient,
  type RedisCluster,
  type RedisNode,
  type RedisSubscriber,
  isOpen,
} from './redis-client.js';
import type { ScriptRunner } from './script-runner.js';

/** What Redis sends on a channel; on `__redis__:invalidate` a list of keys, or `null` for all keys. */
export type ChannelMessage = Buffer | readonly Buffer[] | null;

/** How often (ms) the subscriber sends itself a message. A broken connection is noticed within twice this time. */
const HEARTBEAT = 1_000;
/** How many heartbeats in a row may be lost before a connection that never delivered one is replaced. */
const PATIENCE = 10;
/** How long (ms) after a warning about a loss further losses are not reported. */
const QUIET = 10_000;

/**
 * A connection for messages that is checked end to end.
 *
 * A connection can die without an error. Each subscriber therefore sends itself heartbeats, through the client for
 * commands, on a channel of its own. While they do not arrive it counts as disconnected.
 */
export abstract class WatchedSubscriber {
  private readonly own: string;
  private subscriber: RedisSubscriber | undefined;
  private connected = false;
  private closed = false;
  private missedHeartbeats = 0;
  private timer: NodeJS.Timeout | undefined;
  private nextStart: NodeJS.Timeout | undefined;
  /** How many connections ended since the last heartbeat. */
  private attempts = 0;
  private lossReportedAt = -Infinity;
  private refusalReported = false;
  private lossReported = false;
  private strangeReported = false;
  private readonly onNode = () => this.start();
  /** The connection for commands broke, perhaps by a failover: the address may now lead to another server. */
  private readonly onClientClose = () => this.subscriber?.stream?.destroy();
  /** The client of a Cluster may be ready after the subscriber, whose first heartbeat could not be sent. */
  private readonly onClientReady = () => {
    if (!this.connected) this.sendHeartbeat();
  };

  /** `channel` is the text with which the channel of the heartbeats begins. */
  protected constructor(
    protected readonly scripts: ScriptRunner,
    channel: string,
    private readonly purpose: SubscriberPurpose,
  ) {
    this.own = `${channel}:${randomUUID()}`;
  }

  protected get isConnected(): boolean {
    return this.connected;
  }

  /** `undefined` while there is no connection. */
  protected get connection(): RedisSubscriber | undefined {
    return this.subscriber;
  }

  close(): void {
    clearInterval(this.timer);
    clearTimeout(this.nextStart);
    // The client may belong to the application and outlive this subscriber.
    this.scripts.client.off('+node', this.onNode);
    this.scripts.client.off('close', this.onClientClose);
    this.scripts.client.off('ready', this.onClientReady);
    this.closed = true;
    this.connected = false;
    this.subscriber?.disconnect();
  }

  /** Connects at the first call, and reconnects whenever the connection ends. */
  protected open(): void {
    if (this.timer) return;
    // After a pause of the process, a heartbeat may have arrived but not been read.
    this.timer = setInterval(() => setImmediate(() => this.check()), HEARTBEAT).unref();
    const { client } = this.scripts;
    client.on('close', this.onClientClose);
    client.on('ready', this.onClientReady);
    this.start();
    if (!this.subscriber) client.once('+node', this.onNode);
  }

  private start(): void {
    if (this.subscriber || this.closed) return;
    const subscriber = this.connect();
    if (!subscriber) return;
    this.subscriber = subscriber;
    subscriber.on('messageBuffer', (channel: Buffer, message: ChannelMessage) => {
      const name = channel.toString();
      if (name === this.own) this.onHeartbeat();
      else this.deliver(message, name);
    });
    subscriber.on('ready', () => {
      this.subscribe(subscriber, this.own).then(
        () => this.sendHeartbeat(),
        (error: Error) => this.onRefused(error),
      );
    });
    subscriber.on('close', () => this.lost());
    subscriber.on('end', () => {
      this.subscriber = undefined;
      this.startAgain();
    });
  }

  /** Makes a new connection from what the options of the client are by then: its password may have changed. */
  private startAgain(): void {
    if (this.closed) return;
    this.attempts += 1;
    clearTimeout(this.nextStart);
    this.nextStart = setTimeout(() => this.start(), reconnectDelay(this.attempts)).unref();
  }

  /** Makes the connection; `undefined` while no node of a Cluster is known. */
  protected connect(): RedisSubscriber | undefined {
    return connectionForMessages(this.scripts.client);
  }

  /**
   * Called for each new connection. Subscribe to `own` last: its first heartbeat proves that the other channels are
   * open.
   */
  protected abstract subscribe(subscriber: RedisSubscriber, own: string): Promise<unknown>;
  protected abstract deliver(message: ChannelMessage, channel: string): void;
  protected abstract onConnected(): void;
  protected abstract onDisconnected(): void;

  /** Called with a message of a kind that this version does not know. Such a message changes nothing here. */
  protected onStrangeMessage(): void {
    if (this.strangeReported) return;
    this.strangeReported = true;
    const message =
      `${this.subject}: some are of another version of this library, and are not understood here; ` +
      'bring all processes to one version';
    this.purpose.report({ level: 'warn', message });
  }

  /** Called with the error of `subscribe` or of a heartbeat, from Redis or from a broken connection. */
  protected onRefused(error: Error): void {
    if (error.name !== 'ReplyError' || this.refusalReported) return;
    this.refusalReported = true;
    this.warn(`are refused: ${error.message}${remedyClause(error, REMEDIES)}`);
  }

  private check(): void {
    if (this.closed) return;
    if (this.missedHeartbeats >= (this.connected ? 1 : PATIENCE)) {
      if (!this.connected && !this.lossReported && !this.refusalReported) this.reportLoss('do not arrive');
      this.lost();
      this.missedHeartbeats = 0;
      this.subscriber?.stream?.destroy();
    }
    this.start();
    this.sendHeartbeat();
  }

  private sendHeartbeat(): void {
    this.missedHeartbeats += 1;
    const { client } = this.scripts;
    // Without a connection, the client would queue all heartbeats.
    if (!isOpen(client) && client.status !== 'wait') return;
    this.scripts.command((each) => each.publish(this.own, '')).catch((error: Error) => this.onRefused(error));
  }

  private onHeartbeat(): void {
    this.missedHeartbeats = 0;
    this.attempts = 0;
    if (this.connected) return;
    this.connected = true;
    if (this.lossReported || this.refusalReported) {
      this.lossReported = false;
      this.refusalReported = false;
      this.purpose.report({ level: 'log', message: `${this.subject} arrive again` });
    }
    this.onConnected();
  }

  private lost(): void {
    if (!this.connected) return;
    this.connected = false;
    this.reportLoss('do not arrive: their connection is lost; reconnecting');
    this.onDisconnected();
  }

  private reportLoss(how: string): void {
    if (performance.now() - this.lossReportedAt < QUIET) return;
    this.lossReportedAt = performance.now();
    this.lossReported = true;
    this.warn(how);
  }

  private warn(how: string): void {
    this.purpose.report({ level: 'warn', message: `${this.subject} ${how}. Until they do, ${this.purpose.without}` });
  }

  private get subject(): string {
    return `${serverOf(this.scripts.client)}: messages of ${this.purpose.whose}`;
  }
}

/** The purpose of the messages, in words for the log. */
interface SubscriberPurpose {
  /** As in "messages of the locks". */
  readonly whose: string;
  /** What happens while no message arrives. */
  readonly without: string;
  readonly report: (notice: Notice) => void;
}

/** Subscribes to any number of channels: a function takes a limited number of arguments. */
export async function subscribeAll(subscriber: RedisSubscriber, channels: readonly string[]): Promise<void> {
  const all: Promise<unknown>[] = [];
  for (let at = 0; at < channels.length; at += MOST_CHANNELS) {
    all.push(subscriber.subscribe(...channels.slice(at, at + MOST_CHANNELS)));
  }
  await Promise.all(all);
}

const MOST_CHANNELS = 1_000;

/**
 * Makes another connection to the same server, or to one master of the Cluster; `undefined` while no node is known. It
 * ends with its first loss, so that the loss is noticed and the next one is made with the options that the client has
 * by then. (The subscriber of ioredis for a whole Cluster silently moves to another node and misses messages
 * meanwhile.)
 */
export function connectionForMessages(client: RedisClient, options: RedisOptions = {}): RedisSubscriber | undefined {
  const subscriber = isCluster(client)
    ? masterOf(client)?.duplicate({ ...SUBSCRIBER, ...credentialsOf(client), ...options })
    : client.duplicate({ ...SUBSCRIBER, ...options });
  // The listener keeps ioredis from printing errors; the subscriber reports the loss itself.
  subscriber?.on('error', () => {});
  return subscriber;
}

/** Of a connection for messages, whatever the options of the client it is copied from say. */
const SUBSCRIBER = {
  maxRetriesPerRequest: null,
  retryStrategy: () => null,
  sentinelRetryStrategy: () => null,
  enableReadyCheck: true,
  enableOfflineQueue: true,
  enableAutoPipelining: false,
  // `WatchedSubscriber` subscribes on each new connection; ioredis would leave a rejection unhandled when it is closed.
  autoResubscribe: false,
  // A subscriber sends no command that would make a lazy client connect.
  lazyConnect: false,
  // Without commands, only TCP notices that the other end is gone.
  keepAlive: 10_000,
} satisfies RedisOptions;

/**
 * A new password is given to a Cluster for all nodes, or to the client of each node. Which of the two is that of today
 * is not known: the next attempt may take the other.
 */
function credentialsOf({ options: { redisOptions = {} } }: RedisCluster): RedisOptions {
  const { username, password } = redisOptions;
  return password === undefined || Math.random() < 0.5 ? {} : { password, ...(username !== undefined && { username }) };
}

function masterOf(cluster: RedisCluster): RedisNode | undefined {
  const masters = cluster.nodes('master');
  return masters[Math.floor(Math.random() * masters.length)];
}
