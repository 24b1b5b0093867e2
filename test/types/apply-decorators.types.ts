// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { applyDecorators, SetMetadata } from '@nestjs/common';
import {
  Cached,
  CacheEvict,
  CachePut,
  DistributedLock,
  Idempotent,
  OnlyLeader,
  RateLimit,
  RateLimitPolicy,
  ScheduledLock,
  Semaphore,
  SkipRateLimit,
  type CheckedMethodDecorator,
} from 'nest-redis-lock';

/** One decorator of several. It cannot compare the key with a method that it does not know. */
const All = (key: string) =>
  applyDecorators(
    SetMetadata('key', key),
    DistributedLock('order:<0>'),
    DistributedLock((id: string) => `${key}:${id}`, { wait: '1s', onBusy: 'skip' }),
    Cached('product:<0>', { ttl: '1m', tags: ['product:<0>'] }),
    CachePut('product:<0>', { ttl: '1m' }),
    CacheEvict('product:<0>', { when: 'both' }),
    Semaphore('gpu', { permits: 2 }),
    RateLimit('mail:<0>', { limit: 5, per: '1m' }),
    Idempotent('pay:<0>'),
    OnlyLeader('mails'),
    ScheduledLock('nightly', { atMostFor: '1m', atLeastFor: '1s' }),
    RateLimitPolicy({ limit: 5, per: '1m' }),
    SkipRateLimit(),
  );

const Locked: CheckedMethodDecorator<'DistributedLock', 'order:<0>', [], { readonly onBusy: 'skip' }> = DistributedLock(
  'order:<0>',
  { onBusy: 'skip' },
);
const Found = DistributedLock('order:<0.id>', { wait: 0 });

export class Accepted {
  @All('order')
  async together(_id: string): Promise<void> {}

  @Locked
  async named(_id: string): Promise<void> {}

  @Found
  async kept(_order: { readonly id: number }): Promise<number> {
    return 1;
  }
}

export class Refused {
  // @ts-expect-error a sync method would become async
  @Locked
  sync(_id: string): void {}

  // @ts-expect-error there is no such argument
  @Locked
  async noArgument(): Promise<void> {}

  // @ts-expect-error a skipped call would resolve to undefined
  @Locked
  async notSkippable(_id: string): Promise<number> {
    return 1;
  }

  // @ts-expect-error there is no such property
  @Found
  async noProperty(_id: string): Promise<void> {}
}
