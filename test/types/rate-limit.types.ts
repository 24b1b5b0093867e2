// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { ThrottlerModule, type ThrottlerStorage } from '@nestjs/throttler';
import { RateLimit, RateLimiter, type RateLimitOptions } from 'nest-redis-lock';
import type { Observable } from 'rxjs';

const TEN: RateLimitOptions = { limit: 10, per: '1s' };

export class Accepted {
  @RateLimit('user:<0>', TEN)
  async argument(_id: string): Promise<number> {
    return 1;
  }

  @RateLimit('user:<0.id>', {
    limits: [
      { limit: 10, per: '1s' },
      { limit: 1_000, per: '1h', burst: 50 },
    ],
    cost: 2,
  })
  async path(_user: { readonly id: number }): Promise<void> {}

  @RateLimit((id: string) => id, {
    limit: 1,
    per: 1_000,
    onFailure: 'closed',
    localShare: 1,
    onLimit: ({ key }) => key,
  })
  async keyFunction(_id: string, _more: number): Promise<string> {
    return '';
  }

  @RateLimit('job', { ...TEN, onLimit: 'skip' })
  async skipped(): Promise<void> {}

  @RateLimit('job', { limit: 1, per: '1s', onLimit: 'skip' })
  emptied(): Observable<number> {
    throw new Error('only its type matters');
  }
}

export class Refused {
  // @ts-expect-error a skipped call would resolve to undefined
  @RateLimit('user:<0>', { limits: [{ limit: 1, per: '1s' }], onLimit: 'skip' })
  async severalSkipped(_id: string): Promise<number> {
    return 1;
  }

  // @ts-expect-error one limit, or several
  @RateLimit('user:<0>', { limits: [{ limit: 1, per: '1s' }], limit: 1, per: '1s' })
  async both(_id: string): Promise<void> {}

  // @ts-expect-error a sync method would become async
  @RateLimit('user:<0>', TEN)
  sync(_id: string): number {
    return 1;
  }

  // @ts-expect-error the method has no second argument
  @RateLimit('user:<1>', TEN)
  async missing(_id: string): Promise<void> {}

  // @ts-expect-error an object as key part
  @RateLimit('user:<0>', TEN)
  async object(_user: { readonly id: string }): Promise<void> {}

  // @ts-expect-error a key for each element
  @RateLimit('user:<0.*>', TEN)
  async list(_ids: readonly string[]): Promise<void> {}

  // @ts-expect-error the key function takes a number where the method takes a string
  @RateLimit((id: number) => String(id), TEN)
  async wrongArgument(_id: string): Promise<void> {}

  // @ts-expect-error the method cannot resolve to undefined
  @RateLimit('job', { limit: 1, per: '1s', onLimit: 'skip' })
  async notSkippable(): Promise<number> {
    return 1;
  }
}

export async function calls(limiter: RateLimiter): Promise<void> {
  await limiter.take('key', { limit: 1, per: '1s', burst: 5 });
  // @ts-expect-error a limit needs its time
  await limiter.take('key', { limit: 1 });
  // @ts-expect-error one form or the other
  await limiter.take('key', { limit: 1, per: '1s', limits: [{ limit: 1, per: '1s' }] });
  // @ts-expect-error not a duration
  await limiter.take('key', { limit: 1, per: '1 second' });
}

export const throttled = ThrottlerModule.forRootAsync({
  inject: [RateLimiter],
  useFactory: (limiter: RateLimiter) => ({
    throttlers: [{ ttl: 60_000, limit: 100, blockDuration: 300_000 }],
    storage: limiter.throttlerStorage({ onFailure: 'open' }) satisfies ThrottlerStorage,
  }),
});
