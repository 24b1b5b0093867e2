import type { LockLostReason } from '../../errors/lock-errors.js';
import type { Instant } from '../../timing/instant.js';
import { Grant, type GrantListener } from '../lease/grant.js';
import type { Lease } from '../lease/lease.js';
import type { Releaser } from '../lease/releaser.js';
import type { ReleaseOutcome } from '../lease/release-outcome.js';
import { LONGEST_CLAIM } from '../waiting/attempt.js';
import type { Caller } from '../waiting/caller.js';
import type { CallerTurn, Contention, GrantedLease } from '../waiting/contention.js';
import { Preparation, type PreparedTurn } from '../waiting/preparation.js';
import { grantedTooLate } from '../waiting/refusals.js';
import { SharedGrant, type SharedGrantHost } from './shared-grant.js';

/** While another process waits, callers join a grant for this time (ms), as long as the turn of a writer. */
const LONGEST_TURN = 50;
/**
 * Otherwise for this time (ms): the next caller asks the backend under a new ticket. So a message that a writer waits
 * may be lost, and a process whose readers were deleted at the backend lets nobody in for longer.
 */
const LONGEST_UNCONFIRMED = 500;
/** Callers join with at least this share of a claim left. A shorter lease is renewed first. */
const LEAST_SHARE = 1 / 4;

/**
 * The grants of a contender that reads: admits all callers at once to the current one until its turn is over. Then the
 * next caller asks under a new ticket, behind a writer that waits, and the former grant ends with its last holder.
 */
export class SharedTurn implements CallerTurn, SharedGrantHost, GrantListener, PreparedTurn {
  /** By ticket: the current one, and those whose turn is over. */
  private readonly grants = new Map<string, SharedGrant>();
  private current: SharedGrant | undefined;
  private wanted = false;
  /** Whether the backend knows who waits. */
  private informed = true;
  private preparation: Preparation | undefined;
  /** The grant that is renewed before its first caller enters. */
  private prepared: Grant | undefined;

  constructor(private readonly contention: Contention) {}

  /** The grant that callers join now. */
  get grant(): Grant | undefined {
    const { current } = this;
    if (!current || current.grant === this.prepared || this.admits(current)) return current?.grant;
    this.endTurn(current);
    return undefined;
  }

  get available(): boolean {
    return this.grant !== undefined && !this.prepared;
  }

  get empty(): boolean {
    return this.grants.size === 0;
  }

  owns(ticket: string): boolean {
    return this.grants.has(ticket);
  }

  joined(grant: Grant): void {
    // The turn may have ended since the caller came.
    if (this.current?.grant !== grant) this.contention.goOn();
    else if (grant !== this.prepared) this.serve(grant);
  }

  wantedElsewhere(ticket: string): void {
    if (this.current?.grant.ticket === ticket) this.wanted = true;
  }

  begin(ticket: string, base: Instant, { tokens, remaining, waiting }: GrantedLease, startedAt?: Instant): void {
    const grant = new Grant(this.contention.names, ticket, base, remaining, tokens);
    this.current = this.keep(grant);
    this.wanted = waiting !== 0;
    this.informed = waiting !== undefined;
    this.serve(grant, startedAt);
  }

  /** Takes over the lease of an owner: its last hold that wrote has ended, and holds that read are left. */
  adopt(lease: Lease): void {
    this.keep(lease.grant).adopt(lease);
  }

  /** Admits all callers. */
  serve(grant: Grant, startedAt?: Instant): void {
    const { callers, place } = this.contention;
    const shared = this.current as SharedGrant;
    this.prepared = undefined;
    for (let caller = callers.first; caller; caller = callers.first) {
      if (caller.triesOnce && grant.remaining() <= 0) {
        caller.refuse(grantedTooLate(place.backend, grant.names, caller.options));
      } else if (!caller.triesOnce && !shared.used && this.isTooShort(grant)) {
        this.prepared = grant;
        (this.preparation ??= new Preparation(this, this.contention)).renew(grant, caller.options.ttl);
        return;
      } else this.admit(shared, caller, startedAt);
    }
    this.contention.refuseIfOverdue();
    if (!shared.used) this.giveUp(grant);
  }

  private admit(shared: SharedGrant, caller: Caller, startedAt?: Instant): void {
    caller.place?.leave();
    const lease = shared.admit(caller.options, startedAt);
    shared.watch(lease, this.contention.place.backend.watchdog);
    caller.admit(lease);
  }

  unused(shared: SharedGrant, atOnce: boolean): Promise<ReleaseOutcome> {
    const { grant } = shared;
    if (atOnce || shared !== this.current || !this.wanted || !this.informed || !this.admits(shared)) {
      return this.release(grant);
    }
    // As a turn of writers does: a caller that asks again within this tick joins for the rest of the turn.
    const tickOver = new Promise<void>((resolve) => process.nextTick(resolve));
    const outcome = tickOver.then(() => (shared.used || !this.owns(grant.ticket) ? 'released' : this.release(grant)));
    this.releaser.track(outcome);
    return Promise.resolve('released');
  }

  lost({ grant }: SharedGrant, reason: LockLostReason): void {
    this.drop(grant);
    if (reason !== 'taken') this.releaser.abandon(grant, grant.longest);
    this.contention.goOn();
  }

  disowned(grant: Grant): void {
    this.drop(grant);
    this.contention.goOn();
  }

  giveUp(grant: Grant): void {
    this.releaser.track(this.release(grant));
  }

  quit(): void {
    const { current } = this;
    if (current && !current.used) this.giveUp(current.grant);
  }

  private admits({ grant, begunAt }: SharedGrant): boolean {
    const { channel } = this.contention.place;
    const longest = this.wanted || !channel.isOpen ? LONGEST_TURN : LONGEST_UNCONFIRMED;
    return performance.now() - begunAt < longest && !this.isTooShort(grant);
  }

  private isTooShort(grant: Grant): boolean {
    return grant.remaining() < LEAST_SHARE * Math.min(LONGEST_CLAIM, grant.granted);
  }

  private endTurn(shared: SharedGrant): void {
    const { channel } = this.contention.place;
    if (!channel.isOpen) void channel.open();
    this.current = undefined;
    if (!shared.used) this.giveUp(shared.grant);
  }

  private keep(grant: Grant): SharedGrant {
    const shared = new SharedGrant(grant, this);
    grant.listener = this;
    this.grants.set(grant.ticket, shared);
    return shared;
  }

  private release(grant: Grant): Promise<ReleaseOutcome> {
    this.drop(grant);
    const outcome = this.releaser.release(grant);
    this.contention.forgetIfIdle();
    return outcome;
  }

  private drop(grant: Grant): void {
    this.grants.delete(grant.ticket);
    if (this.current?.grant === grant) this.current = this.prepared = undefined;
    this.contention.place.backend.watchdog.unwatch(grant);
  }

  private get releaser(): Releaser {
    return this.contention.place.backend.releaser;
  }
}
