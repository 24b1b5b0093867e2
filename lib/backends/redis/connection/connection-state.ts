import { isCluster, type RedisClient, type RedisCluster } from '../redis-client.js';
import { causeOf, codeOf, remedyOf } from './diagnosis.js';
import { tryNode } from './node-trial.js';
import { addressOf, serverOf } from './server-address.js';
import { unresolvedNode } from './start-up-nodes.js';

/** The `error` listeners of this class. ioredis prints an error only when there is no listener. */
const ours = new WeakSet<object>();

/** Why a call to Redis failed: names the server, the cause and the remedy. */
export class RedisFailure extends Error {
  override readonly name = 'RedisFailure';
  /** The code of the cause, such as `ECONNREFUSED`. */
  readonly code?: string;

  constructor(message: string, cause?: Error) {
    super(message, cause && { cause });
    const code = cause && codeOf(cause);
    if (code !== undefined) this.code = code;
  }
}

/** Remembers why the connection of a client is down, because the error of a command does not say it. */
export class ConnectionState {
  private lastError: Error | undefined;
  /** On a Cluster: the node that `lastError` came from. */
  private lastNode: string | undefined;
  private closes = 0;
  private trying = false;

  private readonly onError = (error: Error) => {
    this.lastError = error;
    // Our listener must not suppress the message that ioredis prints when nobody listens.
    if (this.own || this.client.library || this.client.listeners('error').some((listener) => !ours.has(listener)))
      return;
    if (this.client.listeners('error')[0] === this.onError)
      console.error(`[${this.client.library ?? 'ioredis'}] Unhandled error event:`, error.stack);
  };
  private readonly onNodeError = (error: Error, node: string) => {
    if (isUninformative(error)) this.findReason(node);
    // ioredis emits the reason first and then a second error: that the connection is closed.
    if (this.lastError && isUninformative(error)) return;
    this.lastError = error;
    this.lastNode = node;
  };
  private readonly onClose = () => {
    this.closes += 1;
    if (isCluster(this.client) && !this.lastError) this.findUnresolvedName(this.client);
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
    // A Cluster emits the errors of its nodes; its own errors come with each failed command.
    if (client.isCluster) client.on('node error', this.onNodeError);
    else client.on('error', this.onError);
    client.on('close', this.onClose);
    client.on('ready', this.onReady);
  }

  /** Says why a command failed with `error`, or got no answer. */
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
    // A client of our own emits one more error while it closes, which must not be printed.
    if (!this.own) client.off('error', this.onError);
  }

  private findUnresolvedName(cluster: RedisCluster): void {
    if (this.trying) return;
    this.trying = true;
    const found = (node: Awaited<ReturnType<typeof unresolvedNode>>) => {
      this.trying = false;
      if (!node || cluster.status === 'ready') return;
      this.lastError = node.error;
      this.lastNode = addressOf(node);
    };
    // The application's `dnsLookup` may throw; then the reason stays unknown.
    unresolvedNode(cluster).then(found, () => (this.trying = false));
  }

  /**
   * A Cluster drops the errors of the connections over which it discovers its nodes, so one more connection is tried.
   */
  private findReason(node: string): void {
    const { client } = this;
    if (this.trying || !isCluster(client) || (this.lastError && !isUninformative(this.lastError))) return;
    const tried = client.nodes('all').find(({ options }) => addressOf(options) === node);
    if (!tried) return;
    this.trying = true;
    void tryNode(tried).then((error) => {
      this.trying = false;
      if (!error || client.status === 'ready') return;
      this.lastError = error;
      this.lastNode = node;
    });
  }

  /** The message for a failure without an error. */
  private silence(): string {
    const { status } = this.client;
    if (status === 'ready') return ' is connected, but does not answer; is it busy or paused?';
    if (status === 'end') {
      return this.client.library === 'node-redis'
        ? ': its client is not open; await its connect() before the application starts, and close it after that'
        : ': its client is closed for good; give a client that connects';
    }
    if (this.closes === 0) {
      const tls = 'tls' in this.client.options && this.client.options.tls ? ', and whether it speaks TLS there' : '';
      return `: there is no connection yet; check host, port and firewall${tls}`;
    }
    return ' closed the connection; start Redis there, or correct host, port and TLS (rediss://)';
  }

  /** The error that Redis answered, or else the reason why there is no connection. */
  private reasonOf(error: unknown): Error | undefined {
    if (error instanceof Error && error.name === 'ReplyError') return error;
    const { lastNodeError } = (error ?? {}) as { lastNodeError?: Error };
    const known = this.lastError ?? lastNodeError;
    if (known) return known;
    return error instanceof Error && this.client.status === 'ready' ? error : undefined;
  }
}

/** Whether it is the message of ioredis for a connection that closed for an unknown reason. */
function isUninformative({ message }: Error): boolean {
  return message === 'Connection is closed.';
}
