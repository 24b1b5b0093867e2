import type { LoggerService } from '@nestjs/common';
import type { LockBackend } from '../../contracts/lock-backend.js';
import { NamedBackend, type NamedBackendOptions } from '../backend/named-backend.js';
import { Contenders } from './contenders.js';

/** A backend with the contenders in which the callers of this process wait for it. */
export class QueueingBackend extends NamedBackend {
  /** Present if the backend keeps a queue of its own. */
  readonly contenders: Contenders | undefined;

  constructor(name: string, backend: LockBackend, options: NamedBackendOptions, logger: Pick<LoggerService, 'warn'>) {
    super(name, backend, options, logger);
    const { queue } = this.calls;
    this.contenders = queue && new Contenders(this, queue);
  }
}
