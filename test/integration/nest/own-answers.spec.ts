import 'reflect-metadata';
import { Next, Req, Res } from '@nestjs/common';
import {
  DistributedLock,
  Idempotent,
  LockConfigError,
  OnlyLeader,
  PrimitiveConfigError,
  RateLimit,
  ScheduledLock,
  Semaphore,
} from 'nest-redis-lock';

/** Declares a route handler with this decorator, whose parameter has that one. */
function declare(decorator: unknown, parameter: ParameterDecorator): void {
  class Orders {
    async order(_response: unknown): Promise<void> {}
  }
  const method = Object.getOwnPropertyDescriptor(Orders.prototype, 'order') as PropertyDescriptor;
  parameter(Orders.prototype, 'order', 0);
  (decorator as MethodDecorator)(Orders.prototype, 'order', method);
}

const hour = { limit: 1, per: '1h' } as const;

describe.each<[name: string, decorator: unknown, call: string, error: new (message: string) => Error]>([
  ['Idempotent', Idempotent('order'), 'a repeat', PrimitiveConfigError],
  ['RateLimit', RateLimit('order', { ...hour, onLimit: 'skip' }), 'a skipped call', PrimitiveConfigError],
  ['Semaphore', Semaphore('order', { permits: 1, onBusy: 'skip' }), 'a skipped call', PrimitiveConfigError],
  ['DistributedLock', DistributedLock('order', { onBusy: 'skip' }), 'a skipped call', LockConfigError],
  ['OnlyLeader', OnlyLeader('order'), 'a skipped call', PrimitiveConfigError],
  ['ScheduledLock', ScheduledLock('order', { atMostFor: '1m', atLeastFor: 0 }), 'a skipped call', PrimitiveConfigError],
])('@%s', (name, decorator, call, ConfigError) => {
  it('is refused on a handler that answers itself, whose request would not be answered', () => {
    const error = new ConfigError(
      `@${name} stands on Orders.order, which answers by @Res() or @Next(), so that ${call} would never be answered; ` +
        'return the body, and set headers by @Res({ passthrough: true })',
    );
    expect(() => declare(decorator, Res())).toThrow(error);
    expect(() => declare(decorator, Next())).toThrow(error);
  });

  it('stands on a handler whose body Nest sends', () => {
    expect(() => declare(decorator, Res({ passthrough: true }))).not.toThrow();
    expect(() => declare(decorator, Req())).not.toThrow();
  });
});

it.each<[name: string, decorator: unknown]>([
  ['RateLimit', RateLimit('order', hour)],
  ['Semaphore', Semaphore('order', { permits: 1, onBusy: () => undefined })],
  ['DistributedLock', DistributedLock('order')],
  ['OnlyLeader', OnlyLeader('order', { elsewhere: 'throw' })],
])('@%s stands on a handler that answers itself where it skips no call', (_name, decorator) => {
  expect(() => declare(decorator, Res())).not.toThrow();
});
