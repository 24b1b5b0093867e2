import type { Warnings } from '../../errors/limited-log.js';
import type { LockBackend } from '../../contracts/lock-backend.js';
import { NamedBackend, type NamedBackendOptions } from './named-backend.js';
import type { Lease } from '../lease/lease.js';
import { PolledQueue } from '../queue/polled-queue.js';
import { Contenders } from '../waiting/contenders.js';

/** A backend with the contenders in which the callers of this process wait for it. */
export class QueueingBackend extends NamedBackend {
  readonly contenders: Contenders;

  constructor(name: string, backend: LockBackend, options: NamedBackendOptions, logger: Warnings) {
    super(name, backend, options, logger);
    this.contenders = new Contenders(this, backend.queue ?? new PolledQueue(backend));
  }

  /** Only holds that read are left of a lease that was taken to write: lets other readers in. */
  downgrade(lease: Lease): void {
    this.contenders.downgrade(lease);
  }

  protected override disconnect(): void {
    super.disconnect();
    this.contenders.channel.close();
  }
}
