import type {
  AcquireAnswer,
  AcquireRequest,
  AcquireSeveralRequest,
  KeepRequest,
  LabelRequest,
  LockBackend,
  LockState,
  LockTraits,
  Minted,
  MintRequest,
  NameRequest,
  Pending,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
  StartRequest,
  TicketRequest,
} from '../../contracts/lock-backend.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import { BriefMap } from '../../timing/brief-collections.js';
import type { ScriptArgument, ScriptRequest } from '../redis/connection/encoded-call.js';
import type { RedisScript } from '../redis/connection/redis-script.js';
import { checkServers } from '../redis/connection/server-check.js';
import { labelKey } from '../redis/locks/redis-lock-keys.js';
import { GRANT_TOKENS } from './acquire.lua.js';
import { Acquisition, type Acquisitions, type NamesRequest, PendingGrant, type ReserveTokens } from './acquisition.js';
import { INSPECT, KEEP, RELEASE, RENEW, REQUEUE } from './owner.lua.js';
import { acquireKeys, redlockKeys, releaseKeys, redlockRights } from './redlock-keys.js';
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
  return new RedlockLockBackend(connections, settings);
}

/** How many fencing tokens a process reserves that has used those of its grant. */
const MORE_TOKENS = 1_024;

class RedlockLockBackend implements LockBackend {
  readonly name = 'redlock';
  readonly traits: LockTraits = { lease: 'ttl', fencing: 'quorum', leastLease: 1 };
  private readonly quorum: Quorum;
  private readonly clock = new TokenClock();
  /** By ticket: the last request of each that not all nodes have answered. */
  private readonly acquisitions: Acquisitions = new BriefMap();
  /** By ticket and name. */
  private readonly renewals = new Map<string, RenewTally>();
  private readonly reserve: ReserveTokens = (request, least) =>
    reserveTokens(this.quorum, this.clock, request, least, GRANT_TOKENS);

  constructor(connections: readonly RedisConnection[], settings: RedlockSettings) {
    this.quorum = new Quorum(connections, settings);
  }

  acquire({ name, ...request }: AcquireRequest): Pending<AcquireAnswer> {
    return this.take({ ...request, names: [name] });
  }

  acquireSeveral(request: AcquireSeveralRequest): Pending<AcquireAnswer> {
    return this.take(request);
  }

  renew(requests: readonly RenewRequest[]): readonly Pending<RenewAnswer>[] {
    return requests.map((request) => this.renewOne(request));
  }

  release(request: ReleaseRequest): Pending<ReleaseAnswer> {
    const { quorum } = this;
    const { ticket, again } = request;
    const keys = releaseKeys(request);
    const acquisition = this.cancel(request);
    const tally = new ReleaseTally(quorum, ticket, keys, acquisition);
    const requeue = again === undefined ? undefined : [ticket, again, this.clock.propose()];
    const release: ScriptRequest = { script: RELEASE, keys, args: [ticket] };
    return ask(quorum, tally, (node, call) => {
      if (quorum.skips(node)) {
        node.owes(ticket, keys);
        return 'away';
      }
      if (acquisition?.undecided) node.sendAcquires();
      if (requeue) node.run(REQUEUE, keys, requeue, call);
      else node.release(release, call);
      return undefined;
    });
  }

  keep(request: KeepRequest): Pending<ReleaseAnswer> {
    const { ticket, rest } = request;
    const tally = new ReleaseTally(this.quorum, ticket, undefined, this.cancel(request));
    return this.askAll(tally, KEEP, [redlockKeys(request).lock], [ticket, rest]);
  }

  mint({ prefix, name, ticket, leastToken }: MintRequest): Promise<Minted | null> {
    const request = { prefix, names: [name], ticket };
    return reserveTokens(this.quorum, this.clock, request, leastToken, MORE_TOKENS);
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    const { lock, fence, wanted } = redlockKeys(request);
    const state = await this.askAll(new InspectTally(this.quorum), INSPECT, [lock, fence, wanted], []);
    const label = state && (await labelOf(this.quorum, request, state.owner));
    return state && { ...state, ...(label && { label }) };
  }

  /** Stores the label at a majority of the nodes; a `ttl` of 0 removes it. */
  async label(request: LabelRequest): Promise<void> {
    const key = labelKey(request, request.process);
    const { label, ttl } = request;
    await onMajority(this.quorum, ({ scripts }) =>
      scripts.command<unknown>((client) => (ttl === 0 ? client.del(key) : client.set(key, label, 'PX', ttl))),
    );
  }

  /** Frees the name of the ticket that owns it at a majority. Its holder learns of the loss at its next renewal. */
  async forceRelease(request: NameRequest): Promise<string | null> {
    const state = await this.inspect(request);
    if (!state) return null;
    const { prefix, name } = request;
    await this.release({ prefix, name, ticket: state.owner });
    return state.owner;
  }

  whenConnected(listener: () => void): () => void {
    const stops = this.quorum.nodes.map(({ scripts }) => scripts.whenConnected(listener));
    return () => {
      for (const stop of stops) stop();
    };
  }

  start(request: StartRequest): Promise<void> {
    return startNodes(this.quorum, request);
  }

  async ping(): Promise<void> {
    await onMajority(this.quorum, ({ scripts }) => scripts.command((client) => client.ping()));
  }

  diagnose(error?: unknown): Error | undefined {
    if (error !== undefined) return undefined;
    const absent = this.quorum.nodes.filter(
      (node) => node.absent || node.silent || !this.quorum.restarts.mayGrant(node),
    );
    return absent.length === 0
      ? undefined
      : new NoQuorum(
          this.quorum,
          absent.map((node) => ({ node })),
        );
  }

  close(): Promise<void> {
    return this.quorum.close();
  }

  private take(request: NamesRequest): Pending<AcquireAnswer> {
    const { quorum } = this;
    quorum.restarts.note(request.ttl);
    const acquisition = new Acquisition(quorum, request, this.acquisitions);
    const grant = new PendingGrant(request, acquisition, this.clock, this.reserve);
    if (quorum.met) this.askToGrant(request, acquisition, grant);
    else {
      void quorum.meeting.then(() => {
        if (!acquisition.cancelled) return this.askToGrant(request, acquisition, grant);
        acquisition.ended();
        grant.cancel();
      });
    }
    return grant.answer;
  }

  private askToGrant(request: NamesRequest, acquisition: Acquisition, grant: PendingGrant): void {
    const { quorum } = this;
    const { names, ticket, ttl, waits } = request;
    const args = [ticket, ttl, grant.propose(), waits ? 1 : 0, names.length];
    const aloneArgs = waits && names.length === 1 ? args.slice(0, 3) : args;
    const acquire: ScriptRequest = { script: quorum.scripts.acquire, keys: acquireKeys(request), args, aloneArgs };
    new Round(quorum, acquisition, grant).begin((node, call) => {
      if (quorum.skips(node) || !quorum.restarts.mayGrant(node)) return 'away';
      if (node.isUnsettled(ticket)) return 'postponed';
      node.acquire(acquire, call);
      return undefined;
    });
  }

  /** Runs a script at all nodes that may be asked. */
  private askAll<Answer>(
    tally: Tally<Answer>,
    script: RedisScript,
    keys: readonly string[],
    args: readonly ScriptArgument[],
  ): Pending<Answer> {
    return ask(this.quorum, tally, (node, call) => {
      if (this.quorum.skips(node)) return 'away';
      node.run(script, keys, args, call);
      return undefined;
    });
  }

  private renewOne(request: RenewRequest): Pending<RenewAnswer> {
    const { quorum } = this;
    const { ticket, ttl } = request;
    quorum.restarts.note(ttl);
    const keys = releaseKeys(request);
    const id = renewalOf(request);
    const topUp = ({ scripts }: RedlockNode) => {
      // A plain command, which never overtakes or follows a release on the same connection out of order.
      scripts.command((client) => client.set(keys[0], ticket, 'PX', ttl, 'NX')).catch(() => {});
    };
    const tally: RenewTally = new RenewTally(quorum, topUp, () => {
      if (this.renewals.get(id) === tally) this.renewals.delete(id);
    });
    this.renewals.set(id, tally);
    const renewal: ScriptRequest = { script: RENEW, keys, args: [ticket, ttl] };
    return ask(quorum, tally, (node, call) => {
      if (quorum.skips(node)) return 'away';
      if (node.isUnsettled(ticket)) return 'postponed';
      node.renew(renewal, call);
      return undefined;
    });
  }

  /** The ticket is released: no node without it is given it from now on. */
  private cancel(request: TicketRequest): Acquisition | undefined {
    const acquisition = this.acquisitions.get(request.ticket);
    acquisition?.release();
    this.renewals.get(renewalOf(request))?.cancel();
    return acquisition;
  }
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
async function startNodes(quorum: Quorum, request: StartRequest): Promise<void> {
  const { report } = request;
  const checked = await Promise.all(quorum.nodes.map((node) => checkNode(node, request)));
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
async function checkNode(node: RedlockNode, request: StartRequest): Promise<unknown> {
  const { prefix, commandTimeout, report } = request;
  node.link.start(request);
  const rights = redlockRights(prefix, node.scripts.client.options.keyPrefix);
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
async function labelOf(quorum: Quorum, request: NameRequest, owner: string): Promise<string | undefined> {
  const process = /^(.+):\d+$/.exec(owner)?.[1];
  if (process === undefined) return undefined;
  const key = labelKey(request, process);
  const labels: (string | null)[] = [];
  await onMajority(quorum, ({ scripts }) =>
    scripts.command((client) => client.get(key)).then((label) => labels.push(label)),
  );
  return labels.find((label) => label !== null) ?? undefined;
}
