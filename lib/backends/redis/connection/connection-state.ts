// Why Redis cannot be used, in one line: which server, what happened, what to do.

import { causeOf, remedyClause, ServerFailure, type Remedies } from '../../failures.js';
import { addressOf, serverOf } from './connection-options.js';
import { unresolvedNode } from './own-client.js';
import { isCluster, type RedisClient, type RedisCluster, type RedisNode } from './redis-client.js';

/** Why a call to Redis failed: names the server, the cause and the remedy. */
export class RedisFailure extends ServerFailure {
  override readonly name = 'RedisFailure';
  /** `'key'`: one of another type. */
  override readonly lasts: boolean | 'key';

  constructor(message: string, cause?: Error) {
    super(message, cause);
    this.lasts = cause !== undefined && LASTS.test(cause.message) && !PASSES.test(cause.message);
    if (this.lasts && /\bWRONGTYPE /.test((cause as Error).message)) this.lasts = 'key';
  }
}

/**
 * What Redis, and a script of Redis, answers to a command that is renamed or disabled; a proxy answers much the same.
 */
const UNKNOWN_COMMAND = /(unknown|unsupported)( redis)? command/i;
/** A right that the ACL user lacks: the answer to a command, and what a script gets that calls one. */
export const NO_RIGHT = /NOPERM|no permissions|user executing the script|ACL failure/;
/** Besides those: what a script could not do with what it found. */
const LASTS = new RegExp(
  `${NO_RIGHT.source}|\\b(WRONGTYPE|CROSSSLOT) |^ERR .*user_script|${UNKNOWN_COMMAND.source}`,
  'i',
);
const PASSES = /\b(OOM|READONLY|MISCONF|NOREPLICAS|LOADING|MASTERDOWN|CLUSTERDOWN|BUSY|non local key)\b/;

/** The `error` listeners of `ConnectionState`. ioredis prints an error only when there is no listener. */
const ours = new WeakSet<object>();

/** Remembers why the connection of a client is down, because the error of a command does not say it. */
export class ConnectionState {
  private lastError: Error | undefined;
  /** On a Cluster: the node that `lastError` came from. */
  private lastNode: string | undefined;
  private closes = 0;
  private trying = false;

  private readonly onError = (error: Error) => {
    this.lastError = error;
    // The client would go on in database 0, among the keys of others.
    if (isFailedSelect(error) && !isCluster(this.client)) this.client.stream?.destroy(error);
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
    if (cause) return new RedisFailure(`${server}: ${causeOf(cause)}${remedyClause(cause, REMEDIES)}`, cause);
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
        : ': its client is closed for good, perhaps by an application that has ended; make its backend in forRootAsync, ' +
            'once for each application, or give a client that connects';
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

/** Whether a new connection could not change to the database of its client. */
function isFailedSelect(error: Error): boolean {
  const { command } = error as { command?: { name?: string } };
  return error.name === 'ReplyError' && command?.name === 'select';
}

/** Whether it is the message of ioredis for a connection that closed for an unknown reason. */
function isUninformative({ message }: Error): boolean {
  return message === 'Connection is closed.';
}

/** Connects to a node of a Cluster once more; resolves to the reason when that fails, else to `undefined`. */
async function tryNode(node: RedisNode): Promise<Error | undefined> {
  let reason: Error | undefined;
  const trial = node.duplicate({ lazyConnect: true, retryStrategy: () => null });
  trial.on('error', (error: Error) => (reason ??= error));
  try {
    await trial.connect();
  } catch {
    // The event gave the reason; this error says only that the connection is closed.
  } finally {
    trial.disconnect();
  }
  return reason;
}

export const REMEDIES: Remedies = [
  [/DB index is out of range/, 'the server has fewer databases: correct "db", or the number at the end of the URL'],
  [UNKNOWN_COMMAND, 'the command is renamed or disabled there: enable it, or give a Redis that has it'],
  [/ECONNREFUSED/, 'nothing listens there: start Redis, or correct host and port'],
  [/ENOTFOUND|EAI_AGAIN/, 'the host name cannot be resolved: correct it'],
  [/ENOENT/, 'the socket does not exist: start Redis, or correct the path'],
  [/EACCES/, 'this process has no permission for the socket: grant it'],
  [/ETIMEDOUT|EHOSTUNREACH|ENETUNREACH/, 'nothing answers there: check host, port and firewall'],
  [/^timeout$/, 'it does not answer: check host, port, firewall, and whether it speaks TLS there'],
  [/ERR_SSL|EPROTO|before secure TLS connection/, 'it does not speak TLS there: give a redis:// URL, or no "tls"'],
  [/CERT|SELF_SIGNED|UNABLE_TO_/, 'its certificate is not trusted: give its authority as tls: { ca }'],
  [/WRONGPASS|invalid password/, 'correct username and password'],
  [/NOAUTH|without any password/, 'give username and password, or none if it asks for none'],
  [NO_RIGHT, 'grant the ACL user what docs/guide/redis.md lists'],
  [/READONLY/, 'it is a replica: give the address of the primary, or use Sentinel'],
  [/^OOM|command not allowed when used memory/, 'its memory is full: raise maxmemory, or free memory'],
  [/MISCONF/, 'it cannot write to its disk: see its log'],
  [/NOREPLICAS/, 'too few replicas follow it: see min-replicas-to-write'],
  [/LOADING/, 'it still reads its data set: wait'],
  [
    /MOVED|CROSSSLOT/,
    'it is a node of a Redis Cluster, which takes keys of one slot at a time and answers MOVED for those of other nodes: give a client of the Cluster, or to redlock() a Redis that serves all',
  ],
  [/CLUSTERDOWN/, 'the Cluster does not serve all slots: see CLUSTER INFO'],
  [
    /ECONNRESET|EPIPE|Connection is closed|closed the connection/,
    'start Redis there, or correct host, port and TLS (rediss://)',
  ],
];
