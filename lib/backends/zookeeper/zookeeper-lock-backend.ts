import { Exception } from 'node-zookeeper-client';
import type {
  LockBackend,
  LockQueue,
  LockState,
  LockStore,
  ModuleContext,
  TicketRequest,
} from '../../contracts/lock-backend.js';
import { MOST_WAITERS } from '../../contracts/lock-requests.js';
import { ownStore } from '../../contracts/store.js';
import { Listeners } from '../listeners.js';
import { FencingTokens, parentPaths, inOrder, ticketOf, type TicketAt, waitsAt } from './lock-node.js';
import { LockNodes, NodeRegistry, childrenOf } from './lock-nodes.js';
import { ParentNodes } from './parent-nodes.js';
import { ZooKeeperConnection } from './zookeeper-connection.js';
import { QueueMessages, QueuePlaces } from './zookeeper-lock-queue.js';
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
  return zookeeperOn(zooKeeperSettings(connection));
}

function zookeeperOn(settings: ZooKeeperSettings): LockBackend {
  const { root, firstToken, sessionTimeout, servers } = settings;
  const listeners = new Listeners();
  const messages = new QueueMessages();
  const connection: ZooKeeperConnection = new ZooKeeperConnection(settings, {
    connected: () => {
      nodes.removeDoomed();
      messages.reconnected();
      listeners.connected();
    },
    lost: (session, why) => {
      const tickets = nodes.lose(session);
      parents.leaveAll();
      listeners.lost(tickets, why);
    },
  });
  const parents = new ParentNodes(root, () => connection.current?.requests);
  const tokens = new FencingTokens(firstToken);
  const registry = new NodeRegistry(root, parents);
  const nodes = new LockNodes(connection, registry, new QueuePlaces(registry, tokens, messages), tokens);
  const inspection = new LockInspection(tokens);

  /** The nodes of a name in order, and the events of their watches as messages. */
  const queueOf = (module: ModuleContext, at: (request: TicketRequest) => TicketAt): LockQueue => ({
    // The session is the channel, and opens with the first request.
    listen: async () => messages.listen(module),

    async enqueue(request) {
      return messages.reachable(request.ticket, await nodes.enter(at(request), request.claim !== undefined));
    },

    async beat(request) {
      const answer = await nodes.beat(at(request));
      return answer ? messages.reachable(request.ticket, answer) : { status: 'gone' };
    },

    async requeue(request) {
      const answer = await nodes.requeue(at(request), request.again);
      return answer.status === 'not-owner' ? answer : messages.reachable(request.again, answer);
    },
  });

  const storeOf = (module: ModuleContext, forget: () => void): LockStore => {
    const parentOf = parentPaths(root, module.prefix);
    const at = ({ name, ticket }: TicketRequest): TicketAt => ({ parent: parentOf(name), name, ticket });
    return {
      queue: queueOf(module, at),

      async acquire({ leastToken = 0, ...request }) {
        const answer = await nodes.enter(at(request), false);
        if (answer.status === 'busy' || answer.tokens.first >= leastToken) return answer;
        const minted = await nodes.mint(at(request), leastToken);
        return minted ? { ...answer, tokens: minted } : { status: 'busy', owner: '', remaining: answer.remaining };
      },

      renew: (requests) => requests.map((request) => nodes.renew(at(request))),
      release: async (request) => ({ status: await nodes.leave(at(request)), resent: false }),
      mint: (request) => nodes.mint(at(request), request.leastToken),
      inspect: async ({ name }) => inspection.inspect(await connection.opened(), parentOf(name)),

      async forceRelease({ name }) {
        const { requests } = await connection.opened();
        const ticket = await inspection.forceRelease(requests, parentOf(name));
        if (ticket !== null) nodes.revoke(at({ name, ticket }));
        return ticket;
      },

      // The label stands in the nodes of the process, and ends with them.
      label: (label, ttl) => nodes.label(module.process, ttl === 0 ? '' : label),

      async start() {
        connection.patience = module.commandTimeout;
        const { requests, granted } = await connection.opened();
        await parents.createRoot(requests);
        if (granted === sessionTimeout) return;
        const message =
          `ZooKeeper at ${servers} grants sessions of ${granted} ms, not of ${sessionTimeout} ms; give this as ` +
          '"sessionTimeout", or change minSessionTimeout or maxSessionTimeout of the servers';
        module.report({ level: 'warn', message });
      },

      stop() {
        messages.unlisten(module);
        forget();
      },
    };
  };

  return {
    name: 'zookeeper',
    traits: { lease: 'session', fencing: 'strict', leastLease: 1 },
    open: (module) => ownStore(storeOf(module, listeners.add(module))),
    diagnose: (error) => failureOf(settings, connection.trouble, error),
    ping: async () => (await connection.opened()).requests.barrier(root),
    async close() {
      if (connection.current) {
        await nodes.close();
        await parents.close();
      }
      await connection.close();
    },
  };
}

/** Reads, and frees by force, what any process owns. */
class LockInspection {
  constructor(private readonly tokens: FencingTokens) {}

  /** `null` when nobody owns the name. */
  async inspect({ requests, timeout }: ZooKeeperSession, parent: string): Promise<LockState | null> {
    for (;;) {
      try {
        const children = await requests.children(parent);
        const [first, ...others] = inOrder(children.names);
        if (first === undefined) return null;
        const waiting = others.filter(waitsAt);
        const seen = [first, ...waiting.slice(0, MOST_WAITERS)];
        const [own, ...nodes] = await Promise.all(seen.map((child) => unlessGone(requests.data(`${parent}/${child}`))));
        if (!own) continue;
        return {
          owner: ticketOf(first),
          ...labelIn(own.data),
          ttl: timeout,
          fencingToken: await this.tokens.newest(requests, parent, children, own.stat),
          waiting: waiting.length,
          waiters: nodes.flatMap((node, index) =>
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
  async forceRelease(requests: ZooKeeperRequests, parent: string): Promise<string | null> {
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
  /** Whether ZooKeeper goes on refusing until somebody grants the right. */
  readonly lasts = codeOf(this.cause) === Exception.NO_AUTH;
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
