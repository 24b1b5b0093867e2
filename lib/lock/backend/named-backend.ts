import { randomUUID } from 'node:crypto';
import type { LoggerService } from '@nestjs/common';
import type { LockBackend, RenewAnswer } from '../../contracts/lock-backend.js';
import { BackendCalls } from './backend-calls.js';
import { addUser, removeUser } from './backend-users.js';
import { currentInstant, type Instant } from '../lease/lease-clock.js';
import type { Lease, LeaseSource } from '../lease/lease.js';
import { LockConfigError } from '../../errors/lock-errors.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { ProcessLabel } from './process-label.js';
import type { ReleaseOutcome } from '../lease/release-outcome.js';
import { Releaser } from '../lease/releaser.js';
import { Watchdog } from '../lease/watchdog.js';

export interface NamedBackendOptions {
  readonly prefix: string | undefined;
  readonly commandTimeout: number;
  readonly label: string;
}

/** A backend under the name that `LockOptions.backend` chooses it by, with what renews and releases its leases. */
export class NamedBackend implements LeaseSource {
  readonly calls: BackendCalls;
  readonly watchdog: Watchdog;
  readonly releaser: Releaser;
  /** What the tickets of this process begin with. */
  readonly instance = randomUUID();
  private readonly label: ProcessLabel;
  private tickets = 0;
  private stopped: Promise<void> | undefined;
  private readonly forgetConnections: (() => void) | undefined;

  constructor(
    readonly name: string,
    backend: LockBackend,
    options: NamedBackendOptions,
    logger: Pick<LoggerService, 'warn'>,
  ) {
    this.calls = new BackendCalls(backend, options.prefix, options.commandTimeout);
    this.label = new ProcessLabel(this.calls, this.instance, options.label);
    this.watchdog = new Watchdog(this.calls, logger);
    this.releaser = new Releaser(this.calls, this.watchdog, logger);
    this.forgetConnections = backend.whenConnected?.(() => this.watchdog.renewAll()) ?? undefined;
  }

  /** @throws LockConfigError when the backend cannot do what the options ask for */
  requireSupport({ order, retry, minHold }: ResolvedLockOptions): void {
    const { backend } = this.calls;
    const { name, capabilities } = backend;
    if (order === 'fifo' && !capabilities.serverQueue) {
      throw new LockConfigError(`Option "order" is "fifo", but backend "${name}" keeps no queue; leave it out`);
    }
    if (order === 'fifo' && retry) {
      throw new LockConfigError('Option "order" is "fifo", but "retry" tries again in no order; leave one of them out');
    }
    if (minHold > 0 && !backend.keep) {
      throw new LockConfigError(
        `Option "minHold" is ${minHold}, but backend "${name}" cannot keep a name whose holder has ended; leave it out`,
      );
    }
  }

  /** @throws LockConfigError when the backend cannot take several names in one step */
  requireSeveralNames(names: readonly string[]): void {
    const { name, capabilities } = this.calls.backend;
    if (capabilities.severalKeys) return;
    throw new LockConfigError(`Backend "${name}" cannot take ${names.length} locks in one step; take them one by one`);
  }

  /** A new ticket for one attempt. No ticket is used twice, so that each answer and message names its attempt. */
  nextTicket(): string {
    this.tickets += 1;
    if (this.tickets === 1) this.label.announce();
    return `${this.instance}:${this.tickets}`;
  }

  /** Ends the lease: releases it, or, where it was lost, asks the backend to free what the ticket may still own. */
  async takeBack(lease: Lease): Promise<ReleaseOutcome> {
    if (!lease.held) {
      lease.expire();
      this.releaser.abandon(lease.grant, lease.grant.longest);
      return 'gone';
    }
    lease.markReleased();
    return this.releaser.release(lease.grant);
  }

  /** The names stay taken until the holder ends or the lease at the backend does. */
  leaseLost({ grant }: Lease): void {
    this.watchdog.unwatch(grant);
  }

  /**
   * Refreshes the lease now.
   *
   * @throws LockBackendError when the backend did not confirm it in time
   */
  async extend(lease: Lease, ttl = lease.options.ttl): Promise<void> {
    const sentAt = currentInstant();
    if (await this.renew(lease, ttl, sentAt)) lease.extended(sentAt, ttl);
  }

  /** Makes the lease at the backend last for `ms` from now. The limits of the holder stay as they are. */
  async keep(lease: Lease, ms: number): Promise<void> {
    await this.renew(lease, ms, currentInstant());
  }

  private async renew(lease: Lease, ttl: number, sentAt: Instant): Promise<boolean> {
    const { grant } = lease;
    const { names, ticket } = grant;
    grant.longest = Math.max(grant.longest, ttl);
    const answer = await new Promise<RenewAnswer>((resolve, reject) => {
      this.calls.sendRenewal({ names, ticket, ttl }, resolve, reject);
    });
    if (answer.status === 'renewed') grant.renewed(sentAt, answer.remaining);
    else lease.lose('taken');
    return answer.status === 'renewed';
  }

  /** From now on, the backend stays open for this module, also when another one that shares it stops. */
  use(): void {
    addUser(this.calls.backend, this);
  }

  /** Releases what is held and closes the backend, unless another module uses it. The first call counts. */
  stop(): Promise<void> {
    return (this.stopped ??= this.stopOnce());
  }

  private async stopOnce(): Promise<void> {
    // At once: the releases and the label each take up to `commandTimeout` where the backend does not answer.
    await Promise.all([this.releaser.stop(this.calls.commandTimeout), this.label.withdraw()]);
    this.watchdog.stop();
    this.forgetConnections?.();
    this.calls.queue?.unlisten(this.instance);
    await removeUser(this.calls.backend, this);
  }
}
