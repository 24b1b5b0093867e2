import { setTimeout as sleep } from 'node:timers/promises';
import type {
  PermitReleaseAnswer,
  PermitRequest,
  SemaphoreStore,
  SemaphoreUse,
} from '../../contracts/primitive-stores.js';
import type { LockBackend } from '../../contracts/lock-backend.js';
import type { Warnings } from '../../errors/limited-log.js';
import type { PermitLostError, PrimitiveBackendError } from '../../errors/primitive-errors.js';
import type { LockSource } from '../../events/lock-channels.js';
import { quoted } from '../../keys/key-part.js';
import { exceedsLease, floorOf, trustedLease, whyNoToken, type TokenFloor } from '../../lock/grant/grant.js';
import { releaseLimit, ReleaseRetries, type UnansweredRelease } from '../../lock/grant/releaser.js';
import { BriefMap, Roster } from '../../timing/brief-collections.js';
import { Timeouts } from '../../timing/clock.js';
import type { PrimitiveCalls, PrimitiveHome } from '../runtime.js';
import { Watchdog, type RenewalCalls } from '../../lock/grant/watchdog.js';
import { ACQUISITION, HeldPermit, type PermitTurn } from './held-permit.js';
import { PermitCall, PermitLine } from './permit-line.js';
import type { SemaphoreSettings } from './semaphore-options.js';
import { SemaphoreQueues } from './semaphore-queues.js';

const RELEASE = 'release of a permit of semaphore';
/** The lease (ms) that a store grants to a waiter, whatever its `ttl`. Renewals do not shorten it. */
const CLAIM = 2_000;

/**
 * The permits of this process at one backend: takes them, keeps them renewed, gives them back.
 *
 * A `PermitCall` waits in the `PermitLine` of its semaphore, which asks the store for permits by `PermitBid`s;
 * `SemaphoreQueues` tell those that wait at the store what it says of their tickets. What a bid is granted is a
 * `PermitTurn`: calls of the line hold it one after another, each as a `HeldPermit`, until it goes back to the store.
 */
export class PermitSource {
  readonly store: SemaphoreStore;
  readonly calls: PrimitiveCalls;
  /** Where the events of its permits come from. */
  readonly eventSource: LockSource;
  readonly queues = new SemaphoreQueues(this);
  readonly timeouts = new Timeouts();
  /** The fencing tokens that this process has seen. */
  readonly floor: TokenFloor;
  /** Whether a request has left this process once it is sent. */
  readonly writesAtOnce: boolean;
  private readonly renewAll = () => this.watchdog.renewAll();
  /** By the name of their semaphore. */
  readonly lines = new BriefMap<string, PermitLine[]>();
  /** Those that are held. */
  readonly live = new Roster<HeldPermit>();
  readonly watchdog: Watchdog<PermitTurn>;
  private readonly retries: ReleaseRetries<PermitRequest & UnansweredRelease>;
  private emptied: (() => void) | undefined = undefined;
  /** The permits that the shutdown does not wait for: their bodies wait for it. */
  private asking: ReadonlySet<HeldPermit> = new Set();
  /** First attempts to give permits back that are under way; `released` is called after the last. */
  private releasing = 0;
  private released: (() => void) | undefined = undefined;

  constructor(
    { stores, calls, backend, prefix, source }: PrimitiveHome,
    private readonly logger: Warnings,
    /** Whether the application is shutting down: no call gets permits any more. */
    private stopping: boolean,
  ) {
    this.store = stores.semaphores;
    this.calls = calls;
    this.eventSource = source;
    this.floor = floorOf(backend, `${prefix ?? ''} semaphores`);
    this.writesAtOnce = backend.traits.writesAtOnce === true;
    this.watchdog = new Watchdog<PermitTurn>(this.renewalsAt(backend), logger, undefined, shownOf);
    calls.whenConnected.add(this.renewAll);
    const send = async (request: PermitRequest, limit: number) => {
      const release = () => this.store.release(request);
      const { live } = await calls.run(RELEASE, request.name, release, { limit, givesBack: true });
      return live;
    };
    const subjectOf = ({ name }: PermitRequest) => shownOf([name]);
    const { commandTimeout, ticks } = calls;
    this.retries = new ReleaseRetries<PermitRequest & UnansweredRelease>(
      { commandTimeout, ticks, label: source.label, send, subjectOf, refuses: () => calls.refusal !== undefined },
      logger,
    );
  }

  take(name: string, settings: SemaphoreSettings): Promise<HeldPermit> {
    return new Promise((resolve, reject) => {
      if (this.stopping) throw this.shuttingDown(name);
      settings.signal?.throwIfAborted();
      const call = new PermitCall(this, name, settings, resolve, reject);
      // Who listens to the event of its attempt may have ended it.
      if (call.over) return;
      let lines = this.lines.get(name);
      if (!lines) this.lines.add(name, (lines = []));
      let line = lines.find((each) => each.serves(settings));
      if (!line) lines.push((line = new PermitLine(this, name, settings)));
      line.join(call);
    });
  }

  /** How much (ms) of the lease that the store says it granted is believed: no more than was asked for. */
  trusted(name: string, answered: number, asked: number): number {
    if (answered > asked && exceedsLease(answered, Math.max(asked, CLAIM))) {
      this.logger.warn(
        `A permit of semaphore "${name}" is said to be held for another ${answered} ms, though ${asked} ms was asked for. ` +
          'The lease counts for no longer than was asked; did the clock of the store step back?',
        'lease of a permit',
      );
    }
    return trustedLease(answered, asked);
  }

  /** The store offers a fencing token that is not above those that this process has seen, or is none. */
  refusalOf(name: string, token: number): PrimitiveBackendError {
    const why = `it offered fencing token ${token}, ${whyNoToken(token, this.floor.of(name))}`;
    const error = this.calls.failure('acquisition of a permit of semaphore', name, why);
    this.logger.warn(error.message, 'tokens of a permit');
    return error;
  }

  /** How many permits of the semaphore are taken, without those that nobody of this process holds any more. */
  use(name: string): Promise<SemaphoreUse> {
    this.giveBackKept(name);
    return this.calls.run('reading of semaphore', name, () => this.store.use(name));
  }

  /** Gives the permits of the semaphore back that nobody of this process holds any more. */
  giveBackKept(name: string): void {
    for (const line of this.lines.get(name) ?? []) line.giveBackKept();
  }

  /**
   * Tells what the store answered within the lease that is left, at its end at the latest; nothing where it was
   * not asked. `mayStay`: nobody relies on it that the store has the permit back by then.
   */
  takeBack(permit: HeldPermit, mayStay: boolean, onTried: (answer?: PermitReleaseAnswer) => void): void {
    const { turn } = permit;
    const { line, request } = turn;
    const { ttl } = line.settings;
    const remaining = turn.remaining();
    this.drop(permit);
    // `drain` has given it back.
    if (permit.lostError?.reason === 'shutdown') return onTried();
    if (line.keeps(turn, mayStay)) {
      onTried();
      return line.passOn(turn);
    }
    this.watchdog.unwatch(turn);
    if (line.kept.length > 0) line.giveBackKept();
    line.forgetIfIdle();
    if (remaining <= 0) {
      this.giveBack(request, ttl, { held: true });
      return onTried();
    }
    const limit = releaseLimit(remaining, this.calls.commandTimeout);
    this.giveBack(request, ttl, { held: true, limit }, onTried);
  }

  /** The answer to a release that no caller waits for says that the permit had been gone. */
  lostUnseen(error: PermitLostError): void {
    this.logger.warn(error.message, `${error.keys.join()} ${error.reason}`);
  }

  /** The permit stays taken at the store until the holder ends or its lease there does. */
  permitLost(permit: HeldPermit): void {
    const { turn } = permit;
    this.watchdog.unwatch(turn);
    this.drop(permit);
    turn.line.forgetIfIdle();
  }

  /**
   * Gives permits back, or takes the ticket out of the queue. A first attempt without an answer is repeated in the
   * background for as long as the lease may last. `unanswered`: a request of the ticket failed, and may be carried out
   * after the release.
   */
  giveBack(
    request: PermitRequest,
    lease: number,
    { held = false, unanswered = false, limit = this.calls.commandTimeout }: GivingBack = {},
    onTried?: (answer?: PermitReleaseAnswer) => void,
  ): void {
    this.releasing += 1;
    const longest = Math.max(lease, CLAIM);
    if (unanswered) void this.retries.repeatLate({ ...request, until: performance.now() + longest, held: false });
    const tried = (answer?: PermitReleaseAnswer) => {
      this.releasing -= 1;
      if (this.releasing === 0) this.released?.();
      onTried?.(answer);
    };
    const failed = () => {
      void this.retries.repeat({ ...request, until: performance.now() + longest, held });
      tried();
    };
    this.calls.ask(RELEASE, request.name, () => this.store.release(request), tried, failed, {
      limit,
      givesBack: true,
    });
  }

  /**
   * Lets holders finish for `grace` ms, those apart whose bodies called the shutdown; then their permits are lost and
   * given back. Waiting calls are refused.
   */
  async drain(grace: number, asking: ReadonlySet<HeldPermit>): Promise<void> {
    this.stopping = true;
    this.asking = asking;
    for (const line of [...this.lines.values()].flat()) line.close((name) => this.shuttingDown(name));
    if (this.awaitsHolders) {
      const empty = new Promise<void>((resolve) => (this.emptied = resolve));
      const over = new AbortController();
      await Promise.race([empty, sleep(grace, undefined, { signal: over.signal }).catch(() => {})]);
      over.abort();
    }
    for (const permit of this.live.toArray()) {
      // The loss of another one may have ended it.
      if (permit.isOver) continue;
      permit.lose('shutdown');
      this.giveBack(permit.turn.request, permit.options.ttl);
    }
    if (this.releasing > 0) await new Promise<void>((resolve) => (this.released = resolve));
    this.retries.stop();
    this.calls.whenConnected.delete(this.renewAll);
  }

  private renewalsAt(backend: LockBackend): RenewalCalls<PermitTurn> {
    const { calls, store, eventSource: source } = this;
    return {
      backend,
      source,
      ticks: calls.ticks,
      commandTimeout: calls.commandTimeout,
      sendRenewals: (requests) =>
        requests.map(
          ({ grant: { request }, ttl }) =>
            new Promise((resolve, reject) => {
              const answered = (remaining: number | undefined) =>
                resolve(remaining === undefined ? { status: 'not-owner' } : { status: 'renewed', remaining });
              calls.begin(() => store.renew({ ...request, ttl })).then(answered, reject);
            }),
        ),
      explain: (_, [name = ''], error) => calls.explain('renewal of a permit of semaphore', name, error),
      renewed: (turn, sentAt, remaining, asked) =>
        turn.renewed(sentAt, this.trusted(turn.request.name, remaining, asked), asked),
    };
  }

  private get awaitsHolders(): boolean {
    return this.live.toArray().some((permit) => !this.asking.has(permit));
  }

  private drop(permit: HeldPermit): void {
    if (this.live.remove(permit)) permit.turn.line.holders -= 1;
    if (this.emptied && !this.awaitsHolders) this.emptied();
  }

  private shuttingDown(name: string): Error {
    return this.calls.failure(ACQUISITION, name, 'the application is shutting down');
  }

  /** The error for a caller whose grant came when its lease had ended. */
  grantedTooLate(name: string, ttl: number): PrimitiveBackendError {
    return this.calls.failure(ACQUISITION, name, `granted too late: the lease of ${ttl} ms had ended`);
  }
}

interface GivingBack {
  readonly held?: boolean;
  readonly unanswered?: boolean;
  readonly limit?: number;
}

function shownOf(names: readonly string[]): string {
  return `a permit of semaphore ${quoted(names)}`;
}
