import { AsyncLocalStorage } from 'node:async_hooks';
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import { PrimitiveConfigError } from '../../errors/primitive-errors.js';
import { LockBackends } from '../../lock/line/lock-backends.js';
import { LockService } from '../../lock/lock.service.js';
import { resolveLockOptions } from '../../lock/options/lock-options.js';
import { primitiveOption } from '../../options/option-checks.js';
import { locksAround, type Candidacy } from './leader-term.js';
import {
  candidateSettings,
  leaderLockName,
  type CandidateOptions,
  type CandidateSettings,
  StandingCandidacy,
} from './standing-candidacy.js';

/** Who leads. */
export interface LeaderInfo {
  /** The `label` of its application: host name and process id by default; absent if the backend keeps no labels. */
  readonly label?: string;
  /** What the backend stores as the owner of the lock. */
  readonly owner: string;
}

/**
 * Elects one leader for each name among the processes that stand for it.
 *
 * The leader holds the lock `leader:<name>` and renews its lease; the others wait in the queue of that lock. It steps
 * down when it can no longer trust its lease, whether or not another process leads yet.
 */
@Injectable()
export class LeaderElection implements OnModuleDestroy {
  private readonly candidacies = new Map<string, StandingCandidacy>();
  /** The names for which decorated methods have joined. */
  private readonly ofMethods = new Set<string>();
  /** Runs a function outside of every lock, also where `join` is called inside of one. */
  private readonly detached = AsyncLocalStorage.snapshot();
  private ended = false;

  /** @internal */
  constructor(
    @Inject(LockService) private readonly locks: LockService,
    @Inject(LockBackends) private readonly backends: LockBackends,
  ) {
    // Where no application calls onModuleDestroy.
    backends.whenDraining(async () => this.onModuleDestroy());
    backends.whenAround(locksAround);
  }

  /**
   * Makes this process stand for the leadership, until it leaves or the application ends. A process has one candidacy
   * for each name: joining again returns it and adds the callbacks.
   *
   * The backend may be away: the process goes on to try, and logs one warning.
   *
   * @throws PrimitiveKeyError, PrimitiveConfigError for a name or options that it cannot take, or that differ from
   * those of the candidacy
   * @throws LockConfigError for a backend that there is none of, or that cannot grant such a lease
   */
  join(name: string, options: CandidateOptions = {}): Candidacy {
    const { onElected, onLost, ...settings } = candidateSettings(options);
    const candidacy = this.candidacies.get(leaderLockName(name)) ?? this.stand(name, settings);
    requireSame(candidacy, settings, options);
    if (onElected || onLost) candidacy.listen({ ...(onElected && { onElected }), ...(onLost && { onLost }) });
    return candidacy;
  }

  /**
   * The candidacy for a decorated method. The first call for the name joins; after `leave()`, and while the application
   * ends, there is none.
   *
   * @internal
   */
  candidacyFor(name: string, options: CandidateOptions): Candidacy | undefined {
    if (this.ended || (this.ofMethods.has(name) && !this.candidacy(name))) return undefined;
    const candidacy = this.join(name, options);
    this.ofMethods.add(name);
    return candidacy;
  }

  /** The candidacy of this process; `undefined` if it has not joined. */
  candidacy(name: string): Candidacy | undefined {
    return this.candidacies.get(leaderLockName(name));
  }

  /** Whether this process leads, as far as it can know. Reads the clock; false if it has not joined. */
  isLeader(name: string): boolean {
    return this.candidacy(name)?.isLeader ?? false;
  }

  /**
   * Asks the backend who leads; `null` when nobody does.
   *
   * @throws LockBackendError when the backend fails
   */
  async leader(name: string, options: Pick<CandidateOptions, 'backend'> = {}): Promise<LeaderInfo | null> {
    const lockName = leaderLockName(name);
    const chosen = primitiveOption.backendOf('leader', options) ?? this.candidacies.get(lockName)?.settings.backend;
    const info = await this.locks.inspect(lockName, chosen === undefined ? {} : { backend: chosen });
    return info && { owner: info.owner, ...(info.label !== undefined && { label: info.label }) };
  }

  /** Whether the application has ended. */
  get closed(): boolean {
    return this.locks.closed;
  }

  /**
   * Begins to hand over before the application stops its servers, and does not wait: the locks wait for it as they wait
   * for all holders.
   *
   * @internal
   */
  onModuleDestroy(): void {
    void this.leaveAll();
  }

  private stand(name: string, settings: Pick<CandidateSettings, 'lease' | 'backend'>): StandingCandidacy {
    const { lease, backend } = settings;
    const { defaults } = this.backends.options;
    if (this.ended) throw new PrimitiveConfigError(`The application is shutting down: it cannot stand for "${name}"`);
    const given = { ttl: lease, linger: 0, ...(backend !== undefined && { backend }) };
    const keeper = this.backends.get(backend ?? defaults.backend);
    keeper.requireSupport(resolveLockOptions(given, defaults));
    const lockName = leaderLockName(name);
    const forget = (left: StandingCandidacy) => {
      if (this.candidacies.get(lockName) === left) this.candidacies.delete(lockName);
    };
    const { logger } = this.backends;
    const { source } = keeper.calls;
    const candidacy = this.detached(() => new StandingCandidacy(name, settings, this.locks, logger, forget, source));
    this.candidacies.set(lockName, candidacy);
    return candidacy;
  }

  private async leaveAll(): Promise<void> {
    this.ended = true;
    await Promise.all(Array.from(this.candidacies.values(), (candidacy) => candidacy.leave()));
  }
}

/** @throws PrimitiveConfigError */
function requireSame(
  { name, settings }: StandingCandidacy,
  { lease, backend }: Pick<CandidateSettings, 'lease' | 'backend'>,
  options: CandidateOptions,
): void {
  const differs =
    options.lease !== undefined && lease !== settings.lease
      ? 'lease'
      : options.backend !== undefined && backend !== settings.backend
        ? 'backend'
        : undefined;
  if (!differs) return;
  throw new PrimitiveConfigError(
    `Option "${differs}" is ${String(options[differs])}, but this process stands for "${name}" with ${String(settings[differs])} already; give the same, or leave it out`,
  );
}
