// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { StreamableFile } from '@nestjs/common';
import { ThrottlerModule, type ThrottlerStorage } from '@nestjs/throttler';
import {
  Idempotent,
  type IdempotentOptions,
  OnlyLeader,
  RateLimit,
  RateLimiter,
  type RateLimitOptions,
  ScheduledLock,
  Semaphore,
} from 'nest-redis-lock';
import type { Observable } from 'rxjs';

const SCHEDULE = { atMostFor: '10m', atLeastFor: '30s' } as const;

declare const untold: any;

export class ScheduleAccepted {
  @ScheduledLock('nightly', SCHEDULE)
  async job(): Promise<void> {}

  @ScheduledLock('nightly', { atMostFor: 600_000, atLeastFor: 0, backend: 'north' })
  async maybe(): Promise<number | undefined> {
    return 1;
  }

  @OnlyLeader('restock')
  async led(): Promise<void> {}

  @OnlyLeader('restock', { elsewhere: 'throw', lease: '5s' })
  async thrown(): Promise<number> {
    return 1;
  }

  @OnlyLeader('restock', untold)
  async withUntoldOptions(): Promise<number> {
    return 1;
  }
}

export class ScheduleRefused {
  // @ts-expect-error a sync method would become async
  @ScheduledLock('nightly', SCHEDULE)
  sync(): void {}

  // @ts-expect-error the name is fixed
  @ScheduledLock('nightly:<0>', SCHEDULE)
  async named(_tenant: string): Promise<void> {}

  // @ts-expect-error a skipped run resolves to undefined
  @ScheduledLock('nightly', SCHEDULE)
  async result(): Promise<number> {
    return 1;
  }

  // @ts-expect-error both durations are needed
  @ScheduledLock('nightly', { atMostFor: '10m' })
  async half(): Promise<void> {}

  // @ts-expect-error an Observable begins when it is subscribed to
  @ScheduledLock('nightly', SCHEDULE)
  stream(): Observable<void> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error a skipped call resolves to undefined
  @OnlyLeader('restock')
  async led(): Promise<number> {
    return 1;
  }

  // @ts-expect-error callbacks belong to LeaderElection.join
  @OnlyLeader('restock', { onElected: () => {} })
  async callback(): Promise<void> {}

  // @ts-expect-error the name is fixed
  @OnlyLeader('restock:<#0>')
  async ledNamed(_shop: object): Promise<void> {}

  // @ts-expect-error a sync method would become async
  @OnlyLeader('restock')
  ledSync(): void {}
}

// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
interface Order {
  readonly orderId: string;
  readonly parts: readonly { readonly sku: string }[];
}

const shared: IdempotentOptions = { ttl: '24h' };

export class IdempotentAccepted {
  @Idempotent('shared', shared)
  async sharedOptions(): Promise<void> {}

  @Idempotent('order:<0.orderId>', { ttl: '24h', fingerprint: '<#0>', onRunning: 'throw' })
  async template(_order: Order): Promise<string> {
    return '';
  }

  @Idempotent((order: Order) => `order:${order.orderId}`, {
    fingerprint: (order: Order, count: number) => [order.parts, count],
    signal: (_order: Order, _count: number, signal?: AbortSignal) => signal,
  })
  async functions(_order: Order, _count: number, _signal?: AbortSignal): Promise<void> {}
}

export class IdempotentRefused {
  // @ts-expect-error there is no such property
  @Idempotent('order:<0.id>')
  async property(_order: Order): Promise<void> {}

  // @ts-expect-error an object is no key part
  @Idempotent('order:<0>')
  async object(_order: Order): Promise<void> {}

  // @ts-expect-error a key for each element
  @Idempotent('sku:<0.parts.*.sku>')
  async several(_order: Order): Promise<void> {}

  // @ts-expect-error the fingerprint names a missing argument
  @Idempotent('order:<0.orderId>', { fingerprint: '<#1>' })
  async fingerprint(_order: Order): Promise<void> {}

  // @ts-expect-error the fingerprint function takes another argument
  @Idempotent('order:<0.orderId>', { fingerprint: (id: number) => id })
  async fingerprintFunction(_order: Order): Promise<void> {}

  // @ts-expect-error the key function takes another argument
  @Idempotent((id: number) => `order:${id}`)
  async keyFunction(_order: Order): Promise<void> {}

  // @ts-expect-error not a promise
  @Idempotent('order:<0>')
  sync(_id: string): string {
    return '';
  }

  // @ts-expect-error a stream cannot be kept
  @Idempotent('order:<0>')
  async stream(_id: string): Promise<StreamableFile> {
    return new StreamableFile(Buffer.from(''));
  }

  // @ts-expect-error an Observable cannot be kept
  @Idempotent('order:<0>')
  observable(_id: string): Observable<string> {
    throw new Error();
  }

  // @ts-expect-error no such mode
  @Idempotent('order:<0>', { onRunning: 'skip' })
  async mode(_id: string): Promise<void> {}
}

// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
const TEN: RateLimitOptions = { limit: 10, per: '1s' };

export class RateLimitAccepted {
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

export class RateLimitRefused {
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

// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
export class SemaphoreAccepted {
  @Semaphore('report:<0>', { permits: 3 })
  async promise(_id: string): Promise<number> {
    return 1;
  }

  @Semaphore('report:<0.customer.id>', { permits: 3, count: 2, ttl: '10s', wait: Infinity })
  declare(_order: { customer: { id: number } }): Observable<number> {
    throw new Error('only its type matters');
  }

  @Semaphore((id: string) => id, { permits: 1, onBusy: ({ error }) => error.waited })
  async keyFunction(_id: string, _more: number): Promise<void> {}

  @Semaphore('job', { permits: 1, onBusy: 'skip' })
  async skipped(): Promise<void> {}
}

export class SemaphoreRefused {
  // @ts-expect-error a sync method would become async
  @Semaphore('report:<0>', { permits: 1 })
  sync(_id: string): number {
    return 1;
  }

  // @ts-expect-error a semaphore needs its number of permits
  @Semaphore('report:<0>', { wait: 0 })
  async withoutPermits(_id: string): Promise<void> {}

  // @ts-expect-error there is no such argument
  @Semaphore('report:<1>', { permits: 1 })
  async noArgument(_id: string): Promise<void> {}

  // @ts-expect-error an object cannot be part of a key
  @Semaphore('report:<0>', { permits: 1 })
  async object(_report: { id: string }): Promise<void> {}

  // @ts-expect-error one call takes permits of one semaphore
  @Semaphore('report:<0.*.id>', { permits: 1 })
  async several(_reports: { id: string }[]): Promise<void> {}

  // @ts-expect-error the key function takes a number where the method takes a string
  @Semaphore((id: number) => String(id), { permits: 1 })
  async otherArgument(_id: string): Promise<void> {}

  // @ts-expect-error a skipped call resolves to undefined
  @Semaphore('job', { permits: 1, onBusy: 'skip' })
  async notSkippable(): Promise<number> {
    return 1;
  }

  // @ts-expect-error the permit cannot cover what a generator yields
  @Semaphore('report:<0>', { permits: 1 })
  async *generator(_id: string): AsyncGenerator<number> {
    yield 1;
  }
}

// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
export class OfInstances {
  readonly region = 'north';

  @ScheduledLock('nightly:<this.region>', SCHEDULE)
  async job(): Promise<void> {}

  @Idempotent(
    function (this: OfInstances, id: string) {
      return `${this.region}:${id}`;
    },
    {
      fingerprint(this: OfInstances) {
        return this.region;
      },
    },
  )
  async functions(_id: string): Promise<void> {}

  @Semaphore('<this.region>:<0>', { permits: 1, signal: (_id: string, given?: AbortSignal) => given })
  async permit(_id: string, _given?: AbortSignal): Promise<void> {}

  // @ts-expect-error there is no property "regoin"
  @ScheduledLock('nightly:<this.regoin>', SCHEDULE)
  async misspelt(): Promise<void> {}

  // @ts-expect-error a leadership belongs to the process
  @OnlyLeader('restock:<this.region>')
  async led(): Promise<void> {}

  // @ts-expect-error the key function has the instance of another class as `this`
  @RateLimit(function (this: ScheduleAccepted) {
    return String(this.led);
  }, TEN)
  async limited(): Promise<void> {}

  // @ts-expect-error the signal function takes an argument more than the method
  @Semaphore('job', { permits: 1, signal: (given: AbortSignal) => given })
  async signal(): Promise<void> {}
}

export class AbsentParts {
  @Idempotent('pay:<0>', { fingerprint: '<1?>' })
  async fingerprint(_id: string, _note?: string): Promise<void> {}

  // @ts-expect-error it may be undefined
  @Idempotent('pay:<0>', { fingerprint: '<1>' })
  async otherFingerprint(_id: string, _note?: string): Promise<void> {}

  // @ts-expect-error the same in the key
  @Idempotent('pay:<0>')
  async key(_id?: string): Promise<void> {}

  // @ts-expect-error the same
  @Semaphore('report:<0>', { permits: 1 })
  async permit(_id?: string): Promise<void> {}

  // @ts-expect-error the same
  @RateLimit('user:<0>', TEN)
  async limited(_id?: string): Promise<void> {}
}
