import type { Cluster } from 'ioredis';
import type { RedisClient } from '../redis-client.js';
import { causeOf, codeOf, remedyOf } from './diagnosis.js';
import { tryNode } from './node-trial.js';
import { addressOf, serverOf } from './server-address.js';

/** Listeners of ours: ioredis prints an error only where there is none. */
const ours = new WeakSet<object>();

/** Why a call to Redis failed: names the server, what happened and what to do. */
export class RedisFailure extends Error {
  override readonly name = 'RedisFailure';
  /** That of the cause, as `ECONNREFUSED`. */
  readonly code?: string;

  constructor(message: string, cause?: Error) {
    super(message, cause && { cause });
    const code = cause && codeOf(cause);
    if (code !== undefined) this.code = code;
  }
}

/** What is known of the connection of a client: the errors that its commands do not tell of. */
export class ConnectionState {
  private lastError: Error | undefined;
  /** Of a Cluster: whose error it was. */
  private lastNode: string | undefined;
  private closes = 0;
  private trying = false;

  private readonly onError = (error: Error) => {
    this.lastError = error;
    // Our listener must not silence what the user of the client would have read.
    if (this.own || this.client.listeners('error').some((listener) => !ours.has(listener))) return;
    if (this.client.listeners('error')[0] === this.onError)
      console.error('[ioredis] Unhandled error event:', error.stack);
  };
  private readonly onNodeError = (error: Error, node: string) => {
    if (isUninformative(error)) this.findReason(node);
    // The reason comes first, and then that the connection is closed.
    if (this.lastError && isUninformative(error)) return;
    this.lastError = error;
    this.lastNode = node;
  };
  private readonly onClose = () => {
    this.closes += 1;
  };
  private readonly onReady = () => {
    this.lastError = undefined;
    this.lastNode = undefined;
    this.closes = 0;
  };

  constructor(
    private readonly client: RedisClient,
    private readonly own: boolean,
  ) {
    ours.add(this.onError);
    // A Cluster tells of its nodes; what it tells of itself comes with each command that fails.
    if (client.isCluster) client.on('node error', this.onNodeError);
    else client.on('error', this.onError);
    client.on('close', this.onClose);
    client.on('ready', this.onReady);
  }

  /** Why a command failed with `error`, or got no answer. */
  diagnose(error?: unknown): RedisFailure {
    if (error instanceof RedisFailure) return error;
    const cause = this.reasonOf(error);
    const server =
      cause === this.lastError && this.lastNode ? `Redis Cluster, node ${this.lastNode}` : serverOf(this.client);
    if (cause) {
      const remedy = remedyOf(cause);
      return new RedisFailure(`${server}: ${causeOf(cause)}${remedy === undefined ? '' : `; ${remedy}`}`, cause);
    }
    return new RedisFailure(`${server}${this.silence()}`, error instanceof Error ? error : undefined);
  }

  close(): void {
    const { client } = this;
    client.off('node error', this.onNodeError);
    client.off('close', this.onClose);
    client.off('ready', this.onReady);
    // Ours closes after this, with an error that nobody reads.
    if (!this.own) client.off('error', this.onError);
  }

  /** A Cluster looks at its nodes over connections whose errors it drops. */
  private findReason(node: string): void {
    if (this.trying || (this.lastError && !isUninformative(this.lastError))) return;
    const tried = (this.client as Cluster).nodes('all').find(({ options }) => addressOf(options) === node);
    if (!tried) return;
    this.trying = true;
    void tryNode(tried).then((error) => {
      this.trying = false;
      if (!error || this.client.status === 'ready') return;
      this.lastError = error;
      this.lastNode = node;
    });
  }

  /** Where no error tells anything. */
  private silence(): string {
    const { status } = this.client;
    if (status === 'ready') return ' is connected, but does not answer; is it busy or paused?';
    if (status === 'end') return ': its client is closed for good; give one that connects';
    if (this.closes === 0) {
      const tls = 'tls' in this.client.options && this.client.options.tls ? ', and whether it speaks TLS there' : '';
      return `: there is no connection yet; check host, port and firewall${tls}`;
    }
    return ' closed the connection; start Redis there, or correct host, port and TLS (rediss://)';
  }

  /** What Redis itself said; else why there is no connection, which the error of a command does not tell. */
  private reasonOf(error: unknown): Error | undefined {
    if (error instanceof Error && error.name === 'ReplyError') return error;
    const { lastNodeError } = (error ?? {}) as { lastNodeError?: Error };
    const known = this.lastError ?? lastNodeError;
    if (known) return known;
    return error instanceof Error && this.client.status === 'ready' ? error : undefined;
  }
}

/** What ioredis says where it knows no reason. */
function isUninformative({ message }: Error): boolean {
  return message === 'Connection is closed.';
}
