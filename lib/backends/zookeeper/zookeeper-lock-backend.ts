import { Exception } from 'node-zookeeper-client';
import type {
  AcquireAnswer,
  AcquireRequest,
  LabelRequest,
  LockBackend,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
} from '../../contracts/lock-backend.js';
import { MOST_WAITERS } from '../../contracts/lock-requests.js';
import type { LossListener } from '../sessions/session-locks.js';
import { FencingTokens, parentPath, inOrder, ticketOf } from './lock-node.js';
import { LockNodes, NodeRegistry, childrenOf } from './lock-nodes.js';
import { ParentNodes } from './parent-nodes.js';
import { ZooKeeperConnection } from './zookeeper-connection.js';
import { QueuePlaces, ZooKeeperLockQueue } from './zookeeper-lock-queue.js';
import { zooKeeperSettings, type ZooKeeperOptions, type ZooKeeperSettings } from './zookeeper-options.js';
import { codeOf, type ZooKeeperRequests } from './zookeeper-requests.js';
import { type ZooKeeperSession, SessionError } from './zookeeper-session.js';

/**
 * Locks on a ZooKeeper ensemble: each ticket is an ephemeral sequential node below the node of its name, and the first
 * one owns the name.
 *
 * The backend opens one session at its first use, which all its locks share: a lock lasts for as long as its session,
 * and its lease is what is left of that. `ttl` limits only locks without renewal.
 *
 * @param connection the servers, such as `'zk1:2181,zk2:2181,zk3:2181'`, or options with them
 * @throws LockConfigError for an option that it cannot take
 */
export function zookeeper(connection: string | ZooKeeperOptions): LockBackend {
  return new ZooKeeperLockBackend(zooKeeperSettings(connection));
}

class ZooKeeperLockBackend implements LockBackend {
  readonly name = 'zookeeper';
  readonly traits: LockTraits = { lease: 'session', fencing: 'strict', leastLease: 1 };
  readonly queue = new ZooKeeperLockQueue(() => this.nodes);
  private readonly connection: ZooKeeperConnection;
  private readonly parents: ParentNodes;
  private readonly nodes: LockNodes;
  private readonly inspection: LockInspection;
  private readonly lossListeners = new Set<LossListener>();
  private readonly connectionListeners = new Set<() => void>();

  constructor(private readonly settings: ZooKeeperSettings) {
    const { root, firstToken } = settings;
    this.connection = new ZooKeeperConnection(settings, {
      connected: () => this.connected(),
      lost: (session, why) => this.lost(session, why),
    });
    this.parents = new ParentNodes(root, () => this.connection.current?.requests);
    const tokens = new FencingTokens(firstToken);
    const registry = new NodeRegistry(root, this.parents);
    this.nodes = new LockNodes(this.connection, registry, new QueuePlaces(registry, tokens, this.queue), tokens);
    this.inspection = new LockInspection(root, tokens);
  }

  async acquire({ prefix, name, ticket, leastToken = 0 }: AcquireRequest): Promise<AcquireAnswer> {
    const request = { prefix, name, ticket, leastToken };
    const answer = await this.nodes.enter(request, false);
    if (answer.status === 'busy' || answer.tokens.first >= leastToken) return answer;
    const tokens = await this.nodes.mint(request);
    return tokens ? { ...answer, tokens } : { status: 'busy', owner: '', remaining: answer.remaining };
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map((request) => this.nodes.renew(request));
  }

  async release(request: TicketRequest): Promise<ReleaseAnswer> {
    return { status: await this.nodes.leave(request), resent: false };
  }

  mint(request: MintRequest): Promise<TokenRange | null> {
    return this.nodes.mint(request);
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    return this.inspection.inspect(await this.connection.opened(), request);
  }

  async forceRelease(request: NameRequest): Promise<string | null> {
    const { requests } = await this.connection.opened();
    const owner = await this.inspection.forceRelease(requests, request);
    if (owner !== null) this.nodes.revoke(request, owner);
    return owner;
  }

  /** The label stands in the nodes of the process, and ends with them. */
  async label({ process, label, ttl }: LabelRequest): Promise<void> {
    await this.nodes.label(process, ttl === 0 ? '' : label);
  }

  onLost(listener: LossListener): () => void {
    this.lossListeners.add(listener);
    return () => this.lossListeners.delete(listener);
  }

  whenConnected(listener: () => void): () => void {
    this.connectionListeners.add(listener);
    return () => this.connectionListeners.delete(listener);
  }

  async start({ commandTimeout, report }: StartRequest): Promise<void> {
    this.connection.patience = commandTimeout;
    try {
      const { requests, timeout } = await this.connection.opened();
      await this.parents.createRoot(requests);
      const { sessionTimeout, servers } = this.settings;
      if (timeout === sessionTimeout) return;
      report({
        level: 'warn',
        message:
          `ZooKeeper at ${servers} grants sessions of ${timeout} ms, not of ${sessionTimeout} ms; give this as ` +
          '"sessionTimeout", or change minSessionTimeout or maxSessionTimeout of the servers',
      });
    } catch (error) {
      throw this.diagnose(error) ?? error;
    }
  }

  diagnose(error?: unknown): Error | undefined {
    return failureOf(this.settings, this.connection.trouble, error);
  }

  async ping(): Promise<void> {
    const { requests } = await this.connection.opened();
    await requests.barrier(this.settings.root);
  }

  async close(): Promise<void> {
    if (this.connection.current) {
      await this.nodes.close();
      await this.parents.close();
    }
    await this.connection.close();
  }

  private connected(): void {
    this.nodes.removeDoomed();
    this.queue.reconnected();
    for (const listener of this.connectionListeners) listener();
  }

  private lost(session: ZooKeeperSession, why: Error): void {
    const tickets = this.nodes.lose(session);
    this.parents.leaveAll();
    if (tickets.length > 0) for (const listener of this.lossListeners) listener(tickets, why);
  }
}

/** Reads, and frees by force, what any process owns. */
class LockInspection {
  constructor(
    private readonly root: string,
    private readonly tokens: FencingTokens,
  ) {}

  /** `null` when nobody owns the name. */
  async inspect({ requests, timeout }: ZooKeeperSession, request: NameRequest): Promise<LockState | null> {
    const parent = parentPath(this.root, request);
    for (;;) {
      try {
        const children = await requests.children(parent);
        const [first, ...waiting] = inOrder(children.names);
        if (first === undefined) return null;
        const seen = [first, ...waiting.slice(0, MOST_WAITERS)];
        const [own, ...others] = await Promise.all(
          seen.map((child) => unlessGone(requests.data(`${parent}/${child}`))),
        );
        if (!own) continue;
        return {
          owner: ticketOf(first),
          ...labelIn(own.data),
          ttl: timeout,
          fencingToken: await this.tokens.newest(requests, parent, children, own.stat),
          waiting: waiting.length,
          waiters: others.flatMap((node, index) =>
            node ? [{ ticket: ticketOf(waiting[index] as string), ...labelIn(node.data) }] : [],
          ),
        };
      } catch (error) {
        if (codeOf(error) === Exception.NO_NODE) return null;
        throw error;
      }
    }
  }

  /** Removes the node of the owner, and answers its ticket; `null` when nobody owned the name. */
  async forceRelease(requests: ZooKeeperRequests, request: NameRequest): Promise<string | null> {
    const parent = parentPath(this.root, request);
    for (;;) {
      const [first] = await childrenOf(requests, parent);
      if (first === undefined) return null;
      if (await unlessGone(requests.remove(`${parent}/${first}`).then(() => true))) return ticketOf(first);
    }
  }
}

/** Why ZooKeeper did not do what it was asked for: names the servers, the cause and the remedy. */
class ZooKeeperFailure extends Error {
  override readonly name = 'ZooKeeperFailure';
}

/** @param trouble what is wrong with the connection, if anything is known to be */
export function failureOf(
  { servers, chroot, root, auth }: ZooKeeperSettings,
  trouble: string | undefined,
  error?: unknown,
): ZooKeeperFailure | undefined {
  if (error instanceof ZooKeeperFailure) return error;
  const failure = (why: string) => new ZooKeeperFailure(`ZooKeeper at ${servers}${chroot}: ${why}`, { cause: error });
  switch (codeOf(error)) {
    case Exception.NO_AUTH:
      return failure(
        auth
          ? `user "${auth.user}" may not use ${root} (NO_AUTH); name another "root", or the user of its ACL`
          : `${root} is not open to everybody (NO_AUTH); give "auth" with the user of its ACL, or name another "root"`,
      );
    case Exception.NO_NODE:
      if (chroot === '') break;
      return failure(`the chroot ${chroot} is not there; create it, or leave it out`);
    case Exception.CONNECTION_LOSS:
    case Exception.SESSION_EXPIRED:
      return failure(`${trouble ?? 'the connection was closed'}; start a server, or correct "servers"`);
    default:
  }
  if (error instanceof SessionError && error.refused) return failure(`${error.message}; correct "auth"`);
  if (error === undefined || error instanceof SessionError) {
    const why = trouble ?? error?.message;
    return why === undefined ? undefined : failure(`${why}; start a server, or correct "servers"`);
  }
  return failure(error instanceof Error ? error.message : 'unknown error');
}

function labelIn(data: Buffer | undefined): { label?: string } {
  return data && data.length > 0 ? { label: data.toString() } : {};
}

/** `undefined` where the node is not there. */
async function unlessGone<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (codeOf(error) !== Exception.NO_NODE) throw error;
    return undefined;
  }
}
