import type { LoggerService } from '@nestjs/common';
import type { LockBackend } from '../../contracts/lock-backend.js';
import { NamedBackend, type NamedBackendOptions } from '../backend/named-backend.js';
import { LockQueues } from './lock-queues.js';

/** A backend with the queues in which the callers of this process wait for it. */
export class QueueingBackend extends NamedBackend {
  /** Present if the backend keeps a queue of its own. */
  readonly queues: LockQueues | undefined;

  constructor(name: string, backend: LockBackend, options: NamedBackendOptions, logger: Pick<LoggerService, 'warn'>) {
    super(name, backend, options, logger);
    this.queues = backend.queue && new LockQueues(backend.queue, this, options.prefix);
  }
}
