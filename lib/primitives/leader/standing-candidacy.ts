import { setTimeout as sleep } from 'node:timers/promises';
import { BehaviorSubject, type Observable } from 'rxjs';
import { type LimitedLog, stackOf } from '../../errors/limited-log.js';
import { LockLostError, LockTimeoutError } from '../../errors/lock-errors.js';
import { NotLeaderError } from '../../errors/primitive-errors.js';
import { leaderChannels, type LeaderEvent } from '../../events/leader-channels.js';
import type { LockSource } from '../../events/lock-channels.js';
import type { Lock } from '../../lock/hold/lock.js';
import type { LockService } from '../../lock/lock.service.js';
import type { LockOptions } from '../../lock/options/lock-options.js';
import { callable, text, timer, type Duration } from '../../options/checks.js';
import { primitiveOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';
import { mayEnd, mustNotEnd, backoff } from '../../timing/clock.js';
import { requireFixedName } from '../runtime.js';
import {
  type Candidacy,
  type LeaderCallbacks,
  type Leadership,
  type LeadershipEnd,
  LeaderTerm,
} from './leader-term.js';

/** How a process stands for a leadership. All candidates of a name should give the same. */
export interface CandidateOptions extends LeaderCallbacks {
  /**
   * How long a leader that died, or that cannot reach the backend, stays leader. While it lives, its lease is renewed
   * every third of that. At least 100 ms.
   * @default '10s'
   */
  lease?: Duration;
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

/** `CandidateOptions` checked, and in ms. */
export interface CandidateSettings {
  readonly lease: number;
  readonly backend: string | undefined;
  readonly onElected: LeaderCallbacks['onElected'] | undefined;
  readonly onLost: LeaderCallbacks['onLost'] | undefined;
}

const setting = settingOf<CandidateSettings>();

const CANDIDATE_OPTIONS = new OptionTable<CandidateOptions, CandidateSettings>(
  primitiveOption,
  'option of a candidate',
  '',
  { lease: 10_000, backend: undefined, onElected: undefined, onLost: undefined },
  {
    lease: setting('lease', timer(100)),
    backend: setting('backend', text('the name of a backend')),
    onElected: setting('onElected', callable()),
    onLost: setting('onLost', callable()),
  },
);

/** @throws PrimitiveConfigError with the option, the value and the remedy */
export function candidateSettings(options: CandidateOptions): CandidateSettings {
  return CANDIDATE_OPTIONS.settings(primitiveOption.object('options', options, 'an object of candidate options'));
}

/**
 * The name of the lock of a leadership.
 *
 * @throws PrimitiveKeyError
 */
export function leaderLockName(name: string): string {
  requireFixedName(name, 'leadership', 'LeaderElection.join()');
  return `leader:${name}`;
}

/**
 * How long (ms) a process that gave up the leadership leaves it to others: longer than candidates sleep between two
 * attempts where the store sends no messages.
 */
const PAUSE = 1_000;
const LONGEST_PAUSE = 60_000;

/** Stands for the leadership until it leaves: waits for the lock, leads while it has it, and waits again. */
export class StandingCandidacy implements Candidacy {
  readonly leadership: Observable<Leadership>;
  readonly answered: Promise<void>;
  private readonly states = new BehaviorSubject<Leadership>({ isLeader: false });
  private readonly listeners = new Set<LeaderCallbacks>();
  private readonly leaving = new AbortController();
  private readonly campaign: Promise<void>;
  private answer: () => void = () => {};
  private present: LeaderTerm | undefined;
  /** Settles when the present term has been handed over. */
  private standing: Promise<unknown> = Promise.resolve();
  /** How many terms in a row ended because `onElected` threw. */
  private failures = 0;
  /** Whether the backend failed since this process last led: logged once. */
  private outage = false;
  /** Warns of a term whose work does not stop. */
  private overdue: NodeJS.Timeout | undefined;

  constructor(
    readonly name: string,
    readonly settings: Pick<CandidateSettings, 'lease' | 'backend'>,
    private readonly locks: LockService,
    private readonly logger: Pick<LimitedLog, 'log' | 'warn' | 'error'>,
    private readonly onLeaving: (candidacy: StandingCandidacy) => void,
    private readonly source: LockSource,
  ) {
    this.leadership = this.states.asObservable();
    this.answered = new Promise((resolve) => (this.answer = resolve));
    if (leaderChannels.joined.hasSubscribers) leaderChannels.joined.publish(leaderEvent(name, source));
    this.campaign = this.stand();
  }

  get isLeader(): boolean {
    return this.term !== undefined;
  }

  get term(): number | undefined {
    return this.current?.number;
  }

  get signal(): AbortSignal | undefined {
    return this.current?.signal;
  }

  /** Also calls `onElected` if this process leads already. */
  listen(listener: LeaderCallbacks): void {
    this.listeners.add(listener);
    this.current?.add(listener);
  }

  async run<T>(body: (signal: AbortSignal, term: number) => Promise<T>): Promise<T> {
    if (typeof body !== 'function') throw primitiveOption.refused('body', body, 'the function that the leader runs');
    const { current } = this;
    if (!current) throw new NotLeaderError(this.name);
    return current.run(body);
  }

  async resign(): Promise<void> {
    const { present } = this;
    present?.end('resigned');
    // The hand-over waits for the work of the term.
    if (present && !present.isAround) await this.standing;
  }

  async leave(): Promise<void> {
    const { present } = this;
    this.onLeaving(this);
    this.leaving.abort();
    present?.end('left');
    if (!present?.isAround) await this.campaign;
  }

  private get current(): LeaderTerm | undefined {
    return this.present?.isOver === false ? this.present : undefined;
  }

  private async stand(): Promise<void> {
    const options = this.lockOptions;
    // Also while it leads or the backend is away: connections of some stores do not keep a process alive. Not longer:
    // the work of a term may never settle.
    mustNotEnd();
    this.leaving.signal.addEventListener('abort', mayEnd, { once: true });
    // One try first: whether another process leads, or the backend is away, is known at once.
    await this.attempt({ ...options, wait: 0 });
    this.answer();
    while (!this.leaving.signal.aborted) await this.attempt(options);
    this.states.complete();
    if (leaderChannels.left.hasSubscribers) leaderChannels.left.publish(leaderEvent(this.name, this.source));
  }

  /** Settles when the wait has failed, or when the term that it led to is over and its lock released. */
  private async attempt(options: LockOptions): Promise<void> {
    const standing = this.locks.withLock(leaderLockName(this.name), options, (lock) => this.lead(lock));
    this.standing = standing.catch(() => {});
    try {
      const ended = await standing;
      this.failures = ended === 'failed' ? this.failures + 1 : 0;
      if (ended !== 'lost') await this.pause(backoff(Math.max(0, this.failures - 1), PAUSE, LONGEST_PAUSE));
    } catch (error) {
      this.answer();
      // A lost lease is logged where it is lost.
      if (error instanceof LockTimeoutError || error instanceof LockLostError || this.leaving.signal.aborted) return;
      if (!this.outage) this.logger.warn(`${(error as Error).message}. Goes on to stand for "${this.name}"`);
      this.outage = true;
      await this.pause(PAUSE);
    }
  }

  private get lockOptions(): LockOptions {
    const { lease, backend } = this.settings;
    return {
      ttl: lease,
      wait: Infinity,
      renew: true,
      maxHold: Infinity,
      minHold: 0,
      order: 'batched',
      release: 'confirmed',
      linger: 0,
      signal: this.leaving.signal,
      ...(backend !== undefined && { backend }),
    };
  }

  /** Settles when the term has ended and its work has stopped; the lock is released then. */
  private async lead(lock: Lock): Promise<LeadershipEnd> {
    // It left when the lock was granted already, so that the wait did not end.
    if (this.leaving.signal.aborted) return 'left';
    const term = new LeaderTerm(lock, this);
    this.present = term;
    this.outage = false;
    this.logger.log(`Leads "${this.name}" (term ${term.number})`);
    this.states.next({ isLeader: true, term: term.number });
    if (leaderChannels.elected.hasSubscribers) {
      leaderChannels.elected.publish({ ...leaderEvent(this.name, this.source), term: term.number });
    }
    this.answer();
    term.begin(this.listeners);
    const reason = await term.over;
    clearTimeout(this.overdue);
    this.present = undefined;
    return reason;
  }

  /** Called at once when the term ends, before its callbacks; `lost` is why the lease was lost, if it was. */
  ended(reason: LeadershipEnd, term: number, lost: unknown): void {
    this.logger.log(`No longer leads "${this.name}" (${reason})`);
    this.states.next({ isLeader: false, reason });
    publishTermEnd(this.name, this.source, term, reason, lost);
    const { lease } = this.settings;
    const held = reason === 'lost' ? 'this process does not stand again' : 'no other process is elected';
    this.overdue = setTimeout(() => {
      this.logger.warn(
        `onElected, onLost or a call on the leader of "${this.name}" has not settled ${lease} ms after its term ended ` +
          `(${reason}); until it does, ${held}`,
      );
    }, lease).unref();
  }

  /** Called when a callback of the term threw. */
  callbackFailed(callback: 'onElected' | 'onLost', error: unknown): void {
    const shown = stackOf(error);
    this.logger.error(`${callback} of the candidate for "${this.name}" failed: ${shown}`);
  }

  private async pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { ref: false, signal: this.leaving.signal }).catch(() => {});
  }
}

/** What all events of a candidacy have in common. */
function leaderEvent(name: string, { backend, label }: LockSource): LeaderEvent {
  return { name, backend, label };
}

/** Publishes why a term has ended, to those who listen; `why` is the loss of its lock, if that was why. */
function publishTermEnd(name: string, source: LockSource, term: number, reason: LeadershipEnd, why: unknown): void {
  const { lost, resigned } = leaderChannels;
  if (reason !== 'lost') {
    if (resigned.hasSubscribers) resigned.publish({ ...leaderEvent(name, source), term, reason });
  } else if (lost.hasSubscribers) {
    const { reason: cause } = why instanceof LockLostError ? why : { reason: 'expired' as const };
    lost.publish({ ...leaderEvent(name, source), term, reason: cause });
  }
}
