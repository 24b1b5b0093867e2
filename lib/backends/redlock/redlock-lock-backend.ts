import type {
  AcquireAnswer,
  LockBackend,
  LockState,
  LockStore,
  ModuleContext,
  NameRequest,
  Pending,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
  TicketRequest,
} from '../../contracts/lock-backend.js';
import { ownStore } from '../../contracts/store.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import { BriefMap } from '../../timing/brief-collections.js';
import type { ScriptArgument, ScriptRequest } from '../redis/connection/script-batch.js';
import type { RedisScript } from '../redis/connection/redis-script.js';
import { checkServers } from '../redis/connection/server-check.js';
import { LockKeys } from '../redis/locks/redis-lock-keys.js';
import { GRANT_TOKENS } from './acquire.lua.js';
import { Acquisition, type Acquisitions, type NamesRequest, PendingGrant, type ReserveTokens } from './acquisition.js';
import { INSPECT, KEEP, RELEASE, RENEW, REQUEUE } from './owner.lua.js';
import { acquireKeys, redlockKeys, type ReleaseKeys, releaseKeys, redlockRights } from './redlock-keys.js';
import type { RedlockNode } from './redlock-node.js';
import { redlockSettings, requireNodes, type RedlockOptions, type RedlockSettings } from './redlock-options.js';
import { NoQuorum, onMajority, Quorum, ask, type Tally, Round, type NodeFailure } from './round.js';
import { ReleaseTally, RenewTally, InspectTally } from './tallies.js';
import { TokenClock, reserveTokens } from './token-reservation.js';

/**
 * Locks that a majority of several independent Redis servers grants (Redlock), so that they survive the loss of the
 * others. At each node a lock is the string `lock:{name}`, as `SET key ticket NX PX ttl` makes it: redlock clients of
 * other languages with the same nodes and keys exclude ours, and ours exclude them.
 *
 * Give an odd number of connections, at least three, to servers without replication between them. Clients that are
 * passed in are used and never closed; from options or URLs the backend makes clients of its own.
 *
 * @throws LockConfigError for a value that is not a connection, or a number of them that tolerates no failure
 */
export function redlock(connections: readonly RedisConnection[], options: RedlockOptions = {}): LockBackend {
  const settings = redlockSettings(options);
  requireNodes(connections, settings);
  return redlockOn(connections, settings);
}

/** How many fencing tokens a process reserves that has used those of its grant. */
const MORE_TOKENS = 1_024;

function redlockOn(connections: readonly RedisConnection[], settings: RedlockSettings): LockBackend {
  const quorum = new Quorum(connections, settings);
  const clock = new TokenClock();
  /** By ticket: the last request of each that not all nodes have answered. */
  const acquisitions: Acquisitions = new BriefMap();
  /** By ticket and name. */
  const renewals = new Map<string, RenewTally>();
  const reserve: ReserveTokens = (request, least) => reserveTokens(quorum, clock, request, least, GRANT_TOKENS);

  const askToGrant = (request: NamesRequest, acquisition: Acquisition, grant: PendingGrant): void => {
    const { names, ticket, ttl, waits } = request;
    const args = [ticket, ttl, grant.propose(), waits ? 1 : 0, names.length];
    const aloneArgs = waits && names.length === 1 ? args.slice(0, 3) : args;
    const keys = acquireKeys(request.keys, names);
    const acquire: ScriptRequest = { script: quorum.scripts.acquire, keys, args, aloneArgs };
    new Round(quorum, acquisition, grant).begin((node, call) => {
      if (quorum.skips(node) || !quorum.restarts.mayGrant(node)) return 'away';
      if (node.isUnsettled(ticket)) return 'postponed';
      node.acquire(acquire, call);
      return undefined;
    });
  };

  const take = (request: NamesRequest): Pending<AcquireAnswer> => {
    quorum.restarts.note(request.ttl);
    const acquisition = new Acquisition(quorum, request, acquisitions);
    const grant = new PendingGrant(request, acquisition, clock, reserve);
    if (quorum.met) askToGrant(request, acquisition, grant);
    else {
      void quorum.meeting.then(() => {
        if (!acquisition.cancelled) return askToGrant(request, acquisition, grant);
        acquisition.ended();
        grant.cancel();
      });
    }
    return grant.answer;
  };

  /** Runs a script at all nodes that may be asked. */
  const askAll = <Answer>(
    tally: Tally<Answer>,
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
  ): Pending<Answer> => {
    return ask(quorum, tally, (node, call) => {
      if (quorum.skips(node)) return 'away';
      node.run(script, keys, args, call);
      return undefined;
    });
  };

  const renewOne = (keys: ReleaseKeys, request: RenewRequest): Pending<RenewAnswer> => {
    const { ticket, ttl } = request;
    quorum.restarts.note(ttl);
    const id = renewalOf(request);
    const topUp = ({ scripts }: RedlockNode) => {
      // A plain command, which never overtakes or follows a release on the same connection out of order.
      scripts.command((client) => client.set(keys[0], ticket, 'PX', ttl, 'NX')).catch(() => {});
    };
    const tally: RenewTally = new RenewTally(quorum, topUp, () => {
      if (renewals.get(id) === tally) renewals.delete(id);
    });
    renewals.set(id, tally);
    const renewal: ScriptRequest = { script: RENEW, keys, args: [ticket, ttl] };
    return ask(quorum, tally, (node, call) => {
      if (quorum.skips(node)) return 'away';
      if (node.isUnsettled(ticket)) return 'postponed';
      node.renew(renewal, call);
      return undefined;
    });
  };

  /** The ticket is released: no node without it is given it from now on. */
  const cancel = (request: TicketRequest): Acquisition | undefined => {
    const acquisition = acquisitions.get(request.ticket);
    acquisition?.release();
    renewals.get(renewalOf(request))?.cancel();
    return acquisition;
  };

  const release = (keys: ReleaseKeys, request: ReleaseRequest): Pending<ReleaseAnswer> => {
    const { ticket, again } = request;
    const acquisition = cancel(request);
    const tally = new ReleaseTally(quorum, ticket, keys, acquisition);
    const requeue = again === undefined ? undefined : [ticket, again, clock.propose()];
    const freeing: ScriptRequest = { script: RELEASE, keys, args: [ticket] };
    return ask(quorum, tally, (node, call) => {
      if (quorum.skips(node)) {
        node.owes(ticket, keys);
        return 'away';
      }
      if (acquisition?.undecided) node.sendAcquires();
      if (requeue) node.run(REQUEUE, keys, requeue, call);
      else node.release(freeing, call);
      return undefined;
    });
  };

  const storeOf = (module: ModuleContext, stops: readonly (() => void)[]): LockStore => {
    const keys = new LockKeys(module.prefix);
    const inspect = async ({ name }: NameRequest): Promise<LockState | null> => {
      const { lock, fence, wanted } = redlockKeys(keys, name);
      const state = await askAll(new InspectTally(quorum), INSPECT, [lock, fence, wanted], []);
      const label = state && (await labelOf(quorum, keys, state.owner));
      return state && { ...state, ...(label && { label }) };
    };
    return {
      acquire: ({ name, ...request }) => take({ ...request, names: [name], keys }),
      acquireSeveral: (request) => take({ ...request, keys }),
      renew: (requests) => requests.map((request) => renewOne(releaseKeys(keys, request.name), request)),
      release: (request) => release(releaseKeys(keys, request.name), request),
      mint: ({ name, ticket, leastToken }) =>
        reserveTokens(quorum, clock, { keys, names: [name], ticket }, leastToken, MORE_TOKENS),

      keep(request) {
        const { name, ticket, rest } = request;
        const tally = new ReleaseTally(quorum, ticket, undefined, cancel(request));
        return askAll(tally, KEEP, [keys.lock(name)], [ticket, rest]);
      },

      inspect,

      /** Stores the label at a majority of the nodes. */
      label: (label, ttl) => {
        const key = keys.label(module.process);
        return onMajority(quorum, ({ scripts }) =>
          scripts.command<unknown>((client) => (ttl === 0 ? client.del(key) : client.set(key, label, 'PX', ttl))),
        );
      },

      /** Frees the name of the ticket that owns it at a majority. Its holder learns of the loss at its next renewal. */
      async forceRelease({ name }) {
        const state = await inspect({ name });
        if (!state) return null;
        await release(releaseKeys(keys, name), { name, ticket: state.owner });
        return state.owner;
      },

      start: () => startNodes(quorum, keys, module),
      stop() {
        for (const stop of stops) stop();
      },
    };
  };

  return {
    name: 'redlock',
    traits: { lease: 'ttl', fencing: 'quorum', leastLease: 1 },
    open: (module) =>
      ownStore(
        storeOf(
          module,
          quorum.nodes.map(({ link }) => link.listeners.add(module)),
        ),
      ),
    ping: () => onMajority(quorum, ({ scripts }) => scripts.command((client) => client.ping())),
    diagnose(error) {
      if (error !== undefined) return undefined;
      const absent = quorum.nodes.filter((node) => node.absent || node.silent || !quorum.restarts.mayGrant(node));
      if (absent.length === 0) return undefined;
      return new NoQuorum(
        quorum,
        absent.map((node) => ({ node })),
      );
    },
    close: () => quorum.close(),
  };
}

function renewalOf({ ticket, name }: TicketRequest): string {
  return `${ticket} ${name}`;
}

/**
 * Checks every node: whether it takes writes, may evict locks, and grants the rights needed. Reports the nodes that
 * fail while a majority serves.
 *
 * @throws NoQuorum in one line when too few nodes can be used
 */
async function startNodes(quorum: Quorum, keys: LockKeys, module: ModuleContext): Promise<void> {
  const { report } = module;
  const checked = await Promise.all(quorum.nodes.map((node) => checkNode(node, keys, module)));
  await quorum.meeting;
  for (const { identified, start, server } of quorum.nodes) {
    if (identified && !start) report({ level: 'warn', message: `${server} ${UNIDENTIFIED}` });
  }
  const failures = quorum.nodes.flatMap((node, index): readonly NodeFailure[] => {
    const error = checked[index];
    return error !== undefined || !quorum.restarts.mayGrant(node) ? [{ node, error }] : [];
  });
  if (failures.length === 0) return;
  const failure = new NoQuorum(quorum, failures);
  if (failures.length > quorum.spare) throw failure;
  report({ level: 'warn', message: `Redlock works with the other nodes: ${failure.message}` });
}

/** Why the node cannot be used; `undefined` where nothing speaks against it. */
async function checkNode(node: RedlockNode, keys: LockKeys, module: ModuleContext): Promise<unknown> {
  const { commandTimeout, report } = module;
  node.link.start(module);
  const rights = redlockRights(keys, node.scripts.client.options.keyPrefix);
  let timer: NodeJS.Timeout | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${commandTimeout} ms`)), commandTimeout).unref();
  });
  try {
    await Promise.race([checkServers(node.scripts, rights, report), silence]);
    return undefined;
  } catch (error) {
    return error;
  } finally {
    clearTimeout(timer);
  }
}

const UNIDENTIFIED =
  'does not tell which server it is: that it restarts, or is listed twice, goes unnoticed, and a second holder may get in; ' +
  'grant its ACL user +info';

/** The label of the owner's process, which one node of a majority has at least. */
async function labelOf(quorum: Quorum, keys: LockKeys, owner: string): Promise<string | undefined> {
  const process = /^(.+):\d+$/.exec(owner)?.[1];
  if (process === undefined) return undefined;
  const key = keys.label(process);
  const labels: (string | null)[] = [];
  await onMajority(quorum, ({ scripts }) =>
    scripts.command((client) => client.get(key)).then((label) => labels.push(label)),
  );
  return labels.find((label) => label !== null) ?? undefined;
}
