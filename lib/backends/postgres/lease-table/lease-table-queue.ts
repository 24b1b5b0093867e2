import type {
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  Pending,
  QueueAnswer,
  QueueListener,
  RequeueRequest,
} from '../../../contracts/lock-backend.js';
import { GONE, queueAnswer, statusOf } from './lease-answers.js';
import type { LeaseTakes } from './batches/lease-takes.js';
import { nameInMessages, type LeaseChannel } from './lease-channel.js';
import type { LeaseTable } from './lease-table.js';
import { lockKey } from './lock-key.js';

/** The queue of the lease table: rows of waiters, and a message for each hand-over. */
export class LeaseTableQueue implements LockQueue {
  constructor(
    private readonly table: LeaseTable,
    private readonly takes: LeaseTakes,
    private readonly channel: LeaseChannel,
  ) {}

  listen(listener: QueueListener): Promise<void> {
    return this.channel.listen(listener);
  }

  unlisten(listener: Pick<QueueListener, 'prefix' | 'process'>): void {
    this.channel.unlisten(listener);
  }

  enqueue(request: EnqueueRequest): Pending<QueueAnswer> {
    const { name, ticket, ttl, claim = null } = request;
    return this.takes.enqueue({ key: lockKey(request), name, ticket, ttl, claim });
  }

  async beat(request: BeatRequest): Promise<QueueAnswer | { status: 'gone' }> {
    const row = await this.table.row(this.table.statements.beat, [lockKey(request), request.ticket]);
    return statusOf(row) === GONE ? { status: 'gone' } : this.channel.withReach(queueAnswer(row), request.name);
  }

  async requeue(request: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const { name, ticket, again, claim } = request;
    const values = [lockKey(request), ticket, again, claim, nameInMessages(name)];
    const row = await this.table.row(this.table.statements.requeue, values);
    if (statusOf(row) === GONE) return { status: 'not-owner', resent: false };
    return this.channel.withReach(queueAnswer(row), name);
  }
}
