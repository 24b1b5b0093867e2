import type {
  AcquireAnswer,
  AcquireRequest,
  KeepRequest,
  LabelRequest,
  LockBackend,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  Pending,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
} from '../../contracts/lock-backend.js';
import type { RedisConnection } from '../../options/redis-connection.js';
import type { RedlockNode } from './nodes/redlock-node.js';
import { redlockScripts, type RedlockScripts } from './nodes/redlock-scripts.js';
import { TokenClock } from './nodes/token-clock.js';
import { acquireKeys, redlockKeys, releaseKeys } from './redlock-keys.js';
import { labelOf, storeLabel } from './redlock-labels.js';
import { redlockSettings, requireNodes, type RedlockOptions, type RedlockSettings } from './redlock-options.js';
import { startNodes } from './redlock-start.js';
import { Acquisition, grantedAnswer, type AcquireReply, type MajorityGrant } from './rounds/acquisition.js';
import { InspectTally, type InspectReply } from './rounds/inspection.js';
import { NoQuorum } from './rounds/no-quorum.js';
import { onMajority } from './rounds/on-majority.js';
import { Quorum } from './rounds/quorum.js';
import { ReleaseTally } from './rounds/release-tally.js';
import { RenewTally, type RenewReply } from './rounds/renew-tally.js';
import { ask, POSTPONED } from './rounds/round.js';
import { GRANT_TOKENS } from './scripts/acquire.lua.js';
import { INSPECT } from './scripts/inspect.lua.js';
import { KEEP } from './scripts/keep.lua.js';
import { reserveTokens } from './token-reservation.js';

/** How many fencing tokens a process reserves that has used those of its grant. */
const MORE_TOKENS = 1_024;
const GIVEN_UP = 'the request was given up before it was granted';

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

class RedlockLockBackend implements LockBackend {
  readonly name = 'redlock';
  readonly traits: LockTraits = { lease: 'ttl', fencing: 'quorum', severalKeys: true, leastLease: 1 };
  private readonly quorum: Quorum;
  private readonly scripts: RedlockScripts;
  private readonly clock = new TokenClock();
  /** By ticket: the last request of each that not all nodes have answered. */
  private readonly acquisitions = new Map<string, Acquisition>();
  private readonly renewals = new Map<string, RenewTally>();

  constructor(connections: readonly RedisConnection[], settings: RedlockSettings) {
    this.quorum = new Quorum(connections, settings);
    this.scripts = redlockScripts(settings.fenceTtl);
  }

  async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    const { quorum } = this;
    const { ticket, ttl } = request;
    const sentAt = performance.now();
    quorum.restarts.note(ttl);
    const keys = acquireKeys(request);
    const acquisition = new Acquisition(quorum, request, () => {
      if (this.acquisitions.get(ticket) === acquisition) this.acquisitions.delete(ticket);
    });
    this.acquisitions.set(ticket, acquisition);
    if (!quorum.met) {
      await quorum.meeting;
      if (acquisition.cancelled) acquisition.ended();
    }
    if (acquisition.cancelled) throw new Error(GIVEN_UP);
    const first = this.clock.propose(request.leastToken);
    const args = [request.names.length, ticket, ttl, first, request.waits ? 1 : 0];
    const answer = await ask<AcquireReply, Exclude<AcquireAnswer, { status: 'granted' }> | MajorityGrant>(
      quorum,
      acquisition,
      (node) => {
        if (quorum.skips(node) || !quorum.restarts.mayGrant(node)) return undefined;
        if (node.isUnsettled(ticket)) return POSTPONED;
        return node.acquire(keys, args) as Pending<AcquireReply>;
      },
    );
    if (answer.status === 'busy') return answer;
    this.clock.heard(answer.time, answer.raise > 0);
    try {
      const tokens = answer.raise === 0 ? { first, count: GRANT_TOKENS } : await this.raise(request, answer.raise);
      if (acquisition.cancelled) throw new Error(GIVEN_UP);
      const late = performance.now() - sentAt;
      if (late >= ttl) throw new Error(`the nodes granted after ${Math.round(late)} ms, when the lease had ended`);
      return grantedAnswer(answer, tokens, ttl);
    } catch (error) {
      acquisition.giveUp();
      throw error;
    }
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return requests.map((request) => this.renewOne(request));
  }

  release(request: TicketRequest): Promise<ReleaseAnswer> {
    const { ticket } = request;
    const keys = releaseKeys(request);
    const tally = new ReleaseTally(this.quorum, ticket, keys, this.resent(), this.cancel(ticket));
    return ask(this.quorum, tally, (node) => {
      if (!this.quorum.skips(node)) return node.release(ticket, keys);
      node.owes(ticket, keys);
      return undefined;
    });
  }

  keep(request: KeepRequest): Promise<ReleaseAnswer> {
    const { ticket, names, rest } = request;
    const keys = names.map((name) => redlockKeys({ prefix: request.prefix, name }).lock);
    const tally = new ReleaseTally(this.quorum, ticket, undefined, this.resent(), this.cancel(ticket));
    return ask(this.quorum, tally, (node) =>
      this.quorum.skips(node) ? undefined : node.run(KEEP, keys, [names.length, ticket, rest]).then(Number),
    );
  }

  mint({ prefix, name, ticket, leastToken }: MintRequest): Promise<TokenRange | null> {
    const request = { prefix, names: [name], ticket };
    return reserveTokens(this.quorum, this.clock, this.scripts.mint, request, leastToken, MORE_TOKENS);
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    const { lock, fence, wanted } = redlockKeys(request);
    const keys = [lock, fence, wanted];
    const { state } = await ask(this.quorum, new InspectTally(this.quorum), (node) =>
      this.quorum.skips(node) ? undefined : (node.run(INSPECT, keys, []) as Promise<InspectReply>),
    );
    const label = state && (await labelOf(this.quorum, request, state.owner));
    return state && { ...state, ...(label && { label }) };
  }

  label(request: LabelRequest): Promise<void> {
    return storeLabel(this.quorum, request);
  }

  /** Frees the name of the ticket that owns it at a majority. Its holder learns of the loss at its next renewal. */
  async forceRelease(request: NameRequest): Promise<string | null> {
    const state = await this.inspect(request);
    if (!state) return null;
    await this.release({ prefix: request.prefix, names: [request.name], ticket: state.owner });
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

  async close(): Promise<void> {
    this.quorum.close();
  }

  private async renewOne(request: RenewRequest): Promise<RenewAnswer> {
    const { ticket, ttl, names, prefix } = request;
    this.quorum.restarts.note(ttl);
    const keys = releaseKeys(request);
    const locks = names.map((name) => redlockKeys({ prefix, name }).lock);
    const topUp = ({ scripts }: RedlockNode) => {
      // Plain commands, which never overtake or follow a release on the same connection out of order.
      for (const lock of locks) scripts.command((client) => client.set(lock, ticket, 'PX', ttl, 'NX')).catch(() => {});
    };
    const tally: RenewTally = new RenewTally(this.quorum, topUp, () => {
      if (this.renewals.get(ticket) === tally) this.renewals.delete(ticket);
    });
    this.renewals.set(ticket, tally);
    return ask(this.quorum, tally, (node) => {
      if (this.quorum.skips(node)) return undefined;
      if (node.isUnsettled(ticket)) return POSTPONED;
      return node.renew(keys, [names.length, ticket, ttl], (reply) => reply as RenewReply);
    });
  }

  /** The ticket is released: no node without it is given it from now on. */
  private cancel(ticket: string): Acquisition | undefined {
    const acquisition = this.acquisitions.get(ticket);
    acquisition?.release();
    this.renewals.get(ticket)?.cancel();
    return acquisition;
  }

  private async raise(request: AcquireRequest, least: number): Promise<TokenRange> {
    const tokens = await reserveTokens(this.quorum, this.clock, this.scripts.mint, request, least, GRANT_TOKENS);
    if (!tokens) throw new Error('the names were lost while fencing tokens were reserved');
    return tokens;
  }

  /** Whether a connection is lost from now on, after which its client sends requests again. */
  private resent(): () => boolean {
    const before = this.quorum.disconnects;
    return () => this.quorum.disconnects !== before;
  }
}
