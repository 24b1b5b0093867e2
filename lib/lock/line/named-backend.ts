import { randomUUID } from 'node:crypto';
import { inspect } from 'node:util';
import {
  byStatus,
  checked,
  isAny,
  isAnyNumber,
  isNumber,
  isText,
  listOf,
  orAbsent,
  orNull,
  withParts,
  type Forms,
} from '../../calls/checked-answers.js';
import type { LockBackend, LockStore, ModuleContext } from '../../contracts/lock-backend.js';
import type { RenewAnswer } from '../../contracts/lock-requests.js';
import type { Warnings } from '../../errors/limited-log.js';
import { LockConfigError, type LockLostReason } from '../../errors/lock-errors.js';
import { currentInstant, type Instant } from '../../timing/clock.js';
import type { Lease, LeaseSource, ReleaseOutcome } from '../grant/lease.js';
import { Releaser } from '../grant/releaser.js';
import { BackendCalls } from '../grant/store.js';
import { Watchdog } from '../grant/watchdog.js';
import { unawaited } from '../../options/option-checks.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { Contenders, heardBy } from './lines.js';
import { PolledQueue } from './polled-queue.js';
import { ProcessLabel } from './process-label.js';

interface BackendOptions extends Pick<ModuleContext, 'prefix' | 'commandTimeout' | 'report'> {
  readonly label: string;
  /** The module shares its backends with nobody, so the line of this process has all that wait. */
  readonly alone?: boolean | undefined;
}

/**
 * A backend with the name by which `LockOptions.backend` chooses it, the contenders in which the callers of this
 * process wait for it, and the watchdog and releaser of its leases.
 */
export class QueueingBackend implements LeaseSource {
  readonly calls: BackendCalls;
  readonly watchdog: Watchdog;
  readonly releaser: Releaser;
  /** What the tickets of this process begin with. */
  readonly instance = randomUUID();
  readonly label: ProcessLabel;
  readonly contenders: Contenders;
  private stopped: Promise<void> | undefined;

  constructor(
    readonly name: string,
    backend: LockBackend,
    private readonly options: BackendOptions,
    logger: Warnings,
  ) {
    const { prefix, commandTimeout, report, label } = options;
    const opened = backend.open({ prefix, process: this.instance, commandTimeout, report, ...heardBy(this) });
    requireStore(backend.name, unawaited(opened));
    const store = checked(opened, ANSWERS);
    const source = { backend: name || backend.name, label };
    this.calls = new BackendCalls(backend, store, prefix, commandTimeout, source, logger);
    this.label = new ProcessLabel(this.calls, label);
    this.watchdog = new Watchdog(this.calls, logger, () => void this.contenders.channel.open());
    this.releaser = new Releaser(this.calls, this.watchdog, logger);
    this.calls.whenConnected.add(() => this.watchdog.renewAll());
    this.contenders = new Contenders(this, store.queue ?? new PolledQueue(store));
  }

  /** @throws LockConfigError when the backend cannot do what the options ask for */
  requireSupport({ order, retry, minHold, ttl, mode, linger }: ResolvedLockOptions): void {
    const { store, backend } = this.calls;
    const { name, traits } = backend;
    if (mode === 'read') requireReaders(name, store, { order, minHold });
    if (linger > 0) requireLinger(name, store, linger, { order, retry, mode });
    if (ttl < traits.leastLease) {
      throw new LockConfigError(
        `Option "ttl" is ${ttl}, but backend "${name}" grants no lease below ${traits.leastLease} ms; give more`,
      );
    }
    if (order === 'fifo' && !store.queue && !this.options.alone) {
      throw new LockConfigError(`Option "order" is "fifo", but backend "${name}" keeps no queue; leave it out`);
    }
    if (order === 'fifo' && retry) {
      throw new LockConfigError('Option "order" is "fifo", but "retry" tries again in no order; leave one of them out');
    }
    if (minHold > 0 && !store.keep) {
      throw new LockConfigError(
        `Option "minHold" is ${minHold}, but backend "${name}" cannot keep a name whose holder has ended; leave it out`,
      );
    }
  }

  /** Ends the lease: releases it, or if it was lost, asks the backend to free what the ticket may still own. */
  async takeBack(lease: Lease): Promise<ReleaseOutcome> {
    if (!lease.held) {
      lease.expire();
      this.releaser.abandon(lease.grant, lease.grant.longest);
      return 'gone';
    }
    lease.markReleased();
    return this.releaser.release(lease.grant);
  }

  /**
   * The names stay taken until the holder ends or the lease at the backend expires. A session would keep them, so the
   * backend frees them at once.
   */
  leaseLost({ grant }: Lease, reason: LockLostReason): void {
    this.watchdog.unwatch(grant);
    if (reason !== 'taken' && this.calls.backend.traits.lease === 'session') {
      this.releaser.abandon(grant, grant.longest);
    }
  }

  /**
   * Refreshes the lease now.
   *
   * @throws LockBackendError when the backend did not confirm it in time
   */
  async extend(lease: Lease, ttl = lease.options.ttl, limit?: number): Promise<void> {
    const sentAt = currentInstant();
    if (await this.renew(lease, ttl, sentAt, limit)) lease.extended(sentAt, ttl);
  }

  /** Makes the lease at the backend last for `ms` from now. The limits of the holder stay as they are. */
  async keep(lease: Lease, ms: number, limit: number): Promise<void> {
    await this.renew(lease, ms, currentInstant(), limit);
  }

  /** Keeps the backend open for this module, even when another module that shares it stops. */
  use(): void {
    addUser(this.calls.backend, this);
  }

  /** Releases what is held and closes the backend, unless another module uses it. The first call counts. */
  stop(): Promise<void> {
    return (this.stopped ??= this.stopOnce());
  }

  private async renew(lease: Lease, ttl: number, sentAt: Instant, limit?: number): Promise<boolean> {
    const { grant } = lease;
    const { names, ticket } = grant;
    grant.longest = Math.max(grant.longest, ttl);
    const answer = await new Promise<RenewAnswer>((resolve, reject) => {
      this.calls.sendRenewal({ names, ticket, ttl }, resolve, reject, limit);
    });
    if (answer.status === 'renewed') this.calls.renewed(grant, sentAt, answer.remaining, ttl);
    else lease.lose('taken');
    return answer.status === 'renewed';
  }

  private async stopOnce(): Promise<void> {
    // In parallel: the releases and the label each take up to `commandTimeout` if the backend does not answer.
    await Promise.all([this.releaser.stop(this.calls.commandTimeout), this.label.withdraw()]);
    this.watchdog.stop();
    this.calls.ticks.stop();
    try {
      this.calls.store.stop?.();
    } finally {
      await removeUser(this.calls, this);
    }
  }
}

/** Also NaN: `BackendCalls` believes no such token, and no such lease. */
const isTokens = withParts({ first: isAnyNumber, count: isAnyNumber });
const isWaiting = orAbsent(isNumber);

/** What asks for a name is answered, by its `status`. */
export const TAKEN = {
  granted: withParts({ tokens: isTokens, remaining: isAnyNumber, waiting: isWaiting }),
  busy: withParts({ owner: isText, remaining: isNumber, unissued: orAbsent(isNumber) }),
};
const isTaken = byStatus(TAKEN);
export const isReleased = byStatus({ released: isAny, gone: isAny, taken: isAny });

/** The form of each answer of a store. */
const ANSWERS: Forms = {
  acquire: isTaken,
  acquireSeveral: isTaken,
  renew: [byStatus({ renewed: withParts({ remaining: isAnyNumber, waiting: isWaiting }), 'not-owner': isAny })],
  release: isReleased,
  keep: isReleased,
  mint: orNull((answer) => isTokens(answer) && withParts({ waiting: isWaiting })(answer)),
  inspect: orNull(withParts({ owner: isText, ttl: isNumber, fencingToken: orNull(isNumber), waiting: isNumber })),
  forceRelease: orNull((answer) => isText(answer) || listOf(isText)(answer)),
  list: withParts({ names: listOf(isText), cursor: isText }),
  label: isAny,
  downgrade: isAny,
  start: isAny,
  queue: {
    listen: isAny,
    enqueue: isTaken,
    beat: byStatus({ ...TAKEN, gone: isAny }),
    requeue: byStatus({ ...TAKEN, 'not-owner': isAny }),
  },
};

/** What every store has. */
const CALLS = ['acquire', 'renew', 'release', 'mint', 'inspect'] as const;

/** @throws LockConfigError when the backend has opened something else, such as the promise of a store */
function requireStore(name: string, store: unknown): void {
  const missing = CALLS.find((call) => typeof (store as LockStore | undefined)?.[call] !== 'function');
  if (missing === undefined) return;
  throw new LockConfigError(
    `Backend "${name}" opened no store: open(module) returned ${inspect(store, { depth: -1 })}, which has no method "${missing}"; ` +
      'return an object with the calls of a LockStore, at once',
  );
}

/** @throws LockConfigError when the backend keeps no read locks, or other options make no sense for them */
function requireReaders(
  name: string,
  store: LockStore,
  { order, minHold }: Pick<ResolvedLockOptions, 'order' | 'minHold'>,
): void {
  if (!store.downgrade) {
    throw new LockConfigError(
      `Option "mode" is "read", but backend "${name}" keeps no read locks; leave it out, or choose a backend that ` +
        'does, redis() or memory(), with the option "backend"',
    );
  }
  if (order === 'fifo') {
    throw new LockConfigError('Option "mode" is "read", but "order" is "fifo": readers come in together; leave it out');
  }
  if (minHold > 0) {
    throw new LockConfigError(
      `Option "mode" is "read", but "minHold" is ${minHold}: only a lock that is held alone can stay taken; leave it out`,
    );
  }
}

/** @throws LockConfigError when nobody tells this process who waits, or other options make no sense with `linger` */
function requireLinger(
  name: string,
  { queue }: LockStore,
  linger: number,
  { order, retry, mode }: Pick<ResolvedLockOptions, 'order' | 'retry' | 'mode'>,
): void {
  const refuse = (why: string) => {
    throw new LockConfigError(`Option "linger" is ${linger}, but ${why}; leave it out, or give 0`);
  };
  if (mode === 'read')
    refuse('"mode" is "read": readers share a name, and a writer must not wait for one that has ended');
  if (order === 'fifo') refuse('"order" is "fifo": each hold asks the store anew');
  if (retry) refuse('"retry" polls: each try asks the store anew');
  // In memory a free lock takes no request that could be saved.
  if (name !== 'memory' && (!queue || queue.pace)) refuse(`backend "${name}" does not tell who waits for a name`);
}

const users = new WeakMap<LockBackend, Set<object>>();

/** Notes a user that needs the backend open: several modules may share one. */
function addUser(backend: LockBackend, user: object): void {
  const all = users.get(backend) ?? new Set();
  users.set(backend, all.add(user));
}

/** Closing may take as long as this number of calls. */
const CLOSE_CALLS = 5;

/**
 * Takes `user` off the list, and closes the backend unless another user is on it.
 *
 * @throws LockBackendError when it does not close in time: the application is not to wait for it
 */
async function removeUser(calls: BackendCalls, user: object): Promise<void> {
  const { backend, commandTimeout } = calls;
  const others = users.get(backend);
  others?.delete(user);
  if (others?.size) return;
  const limit = CLOSE_CALLS * commandTimeout;
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(calls.unanswered('close', [], limit)), limit).unref();
  });
  try {
    await Promise.race([backend.close(), tooLate]);
  } finally {
    clearTimeout(timer);
  }
}
