import { randomUUID } from 'node:crypto';
import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  ModuleContext,
  Pending,
  QueueAnswer,
  QueueMessage,
  RequeueRequest,
  TicketRequest,
} from '../../../contracts/lock-backend.js';
import { LockReplicationError } from '../../../errors/lock-errors.js';
import { lockOption } from '../../../options/option-checks.js';
import { Timeouts } from '../../../timing/clock.js';
import { reconnectDelay } from '../connection/own-client.js';
import { isCluster, type RedisSubscriber } from '../connection/redis-client.js';
import type { RedisLink } from '../connection/redis-link.js';
import { MIXED_UP } from '../connection/script-runner.js';
import { connectionForMessages } from '../connection/watched-subscriber.js';
import type { LockKeys } from './redis-lock-keys.js';

/** The `commandTimeout` (ms) until a module has started. */
const COMMAND_TIMEOUT = 1_000;
/** The share of `commandTimeout` in which replicas must confirm: a grant may wait for one round before its own. */
const SHARE = 1 / 3;
/** How long (ms) the key of a round stays. */
const KEY_TTL = 1_000;

/**
 * Asks whether replicas have what Redis has written, by WAIT. It has a connection of its own, because WAIT holds up all
 * commands behind it. Grants that come while one round is under way share the next.
 */
export class Replicas {
  private readonly key = `replicas:${randomUUID()}`;
  private readonly timeouts = new Timeouts();
  private connection: RedisSubscriber | undefined;
  private current: Promise<number> | undefined;
  private next: Promise<number> | undefined;
  private closed = false;
  private rounds = 0;
  /** How long (ms) replicas may take. */
  private patience = 0;

  /** @throws LockConfigError on a Cluster: WAIT names no node */
  constructor(
    private readonly link: RedisLink,
    private readonly least: number,
  ) {
    if (isCluster(link.client)) {
      throw lockOption.conflict(`Option "minReplicas" is ${least}, but a Cluster cannot wait for them; leave it out`);
    }
    this.allow(COMMAND_TIMEOUT);
  }

  /** Sets the time limit of a round from the `commandTimeout` of a module. */
  allow(commandTimeout: number): void {
    this.patience = Math.max(1, Math.floor(commandTimeout * SHARE));
  }

  /**
   * Resolves when enough replicas have all that Redis has written until now.
   *
   * @throws LockReplicationError when too few of them have it in time
   */
  async confirm(keys: LockKeys, names: readonly string[]): Promise<void> {
    this.next ??= this.after(this.current, keys);
    const confirmed = await this.next;
    if (confirmed >= this.least) return;
    throw new LockReplicationError(names, { confirmed, wanted: this.least, within: this.patience });
  }

  close(): void {
    this.closed = true;
    this.connection?.disconnect();
    this.connection = undefined;
  }

  private async after(current: Promise<number> | undefined, keys: LockKeys): Promise<number> {
    await current?.catch(() => {});
    this.current = this.next;
    this.next = undefined;
    return this.ask(keys);
  }

  /** WAIT covers the last write of its own connection, and with it all that Redis has written before. */
  private ask(keys: LockKeys): Promise<number> {
    return new Promise((resolve, reject) => {
      const connection = this.connected();
      const limit = this.timeouts.start(2 * this.patience, {
        expire: () => {
          this.disconnect(connection);
          resolve(0);
        },
      });
      const key = (this.link.client.options.keyPrefix ?? '') + keys.lock(this.key);
      const round = `${this.key}:${++this.rounds}`;
      // The last reply says of which round they are: where one was lost or came twice, each belongs to another command.
      Promise.all([
        connection.call('SET', key, '', 'PX', KEY_TTL),
        connection.call('WAIT', this.least, this.patience),
        connection.call('PING', round),
      ]).then(
        ([, confirmed, answered]) => {
          if (!limit.leave()) return;
          if (answered === round) return resolve(Number(confirmed));
          this.disconnect(connection);
          reject(new Error(`Redis answered another round of WAIT: ${MIXED_UP}`));
        },
        (error: Error) => {
          if (limit.leave()) reject(error);
        },
      );
    });
  }

  private connected(): RedisSubscriber {
    if (this.connection) return this.connection;
    const connection = this.closed ? undefined : connectionForMessages(this.link.client, CONNECTION);
    if (!connection) throw new Error('The backend is closed');
    connection.on('end', () => this.disconnect(connection));
    return (this.connection = connection);
  }

  private disconnect(connection: RedisSubscriber): void {
    if (this.connection === connection) this.connection = undefined;
    connection.disconnect();
  }
}

/** It lasts for longer than one round only where each round is answered. */
const CONNECTION = { keyPrefix: '', retryStrategy: reconnectDelay, sentinelRetryStrategy: reconnectDelay };

/** A queue whose grants count once enough replicas have them. One that they do not have is released. */
export class ReplicatedQueue implements LockQueue {
  private readonly queue: LockQueue;

  constructor(
    private readonly module: ModuleContext,
    private readonly keys: LockKeys,
    private readonly replicas: Replicas,
    queueOf: (module: ModuleContext) => LockQueue,
    private readonly release: (request: TicketRequest) => Pending<unknown>,
  ) {
    const message = (each: QueueMessage) => (each.kind === 'grant' ? void this.deliver(each) : module.message(each));
    this.queue = queueOf({ ...module, message });
  }

  listen(): Promise<void> {
    return this.queue.listen();
  }

  async enqueue(request: EnqueueRequest): Promise<QueueAnswer> {
    return this.confirmed(request, await this.queue.enqueue(request));
  }

  async beat(request: BeatRequest): Promise<QueueAnswer | { readonly status: 'gone' }> {
    return this.confirmed(request, await this.queue.beat(request));
  }

  async requeue(
    request: RequeueRequest,
  ): Promise<QueueAnswer | { readonly status: 'not-owner'; readonly resent: boolean }> {
    return this.confirmed(request, await this.queue.requeue(request));
  }

  /** A grant that was not confirmed rejects: the caller of the backend then releases the ticket. */
  private async confirmed<A extends { readonly status: string }>(request: TicketRequest, answer: A): Promise<A> {
    if (answer.status === 'granted') await this.replicas.confirm(this.keys, [request.name]);
    return answer;
  }

  /** The ticket of a grant that was not confirmed is released, and its process asks again. */
  private async deliver(message: GrantMessage): Promise<void> {
    const { name, ticket } = message;
    try {
      await this.replicas.confirm(this.keys, [name]);
    } catch {
      // Without an answer the claim ends it.
      this.release({ name, ticket }).then(
        () => {},
        () => {},
      );
      return;
    }
    this.module.message(message);
  }
}

type GrantMessage = Extract<QueueMessage, { kind: 'grant' }>;
