import 'reflect-metadata';
import { applyDecorators } from '@nestjs/common';
import {
  CacheConfigError,
  Cached,
  CacheEvict,
  CachePut,
  DistributedLock,
  Idempotent,
  LockConfigError,
  OnlyLeader,
  PrimitiveConfigError,
  RateLimit,
  ScheduledLock,
  Semaphore,
} from 'nest-redis-lock';

describe.each<[name: string, decorator: PropertyDecorator, error: new (message: string) => Error]>([
  ['DistributedLock', DistributedLock('order', { onBusy: 'skip' }), LockConfigError],
  ['Cached', Cached('order'), CacheConfigError],
  ['CachePut', CachePut('order'), CacheConfigError],
  ['CacheEvict', CacheEvict('order'), CacheConfigError],
  ['Semaphore', Semaphore('order', { permits: 1 }), PrimitiveConfigError],
  ['RateLimit', RateLimit('order', { limit: 1, per: '1h' }), PrimitiveConfigError],
  ['Idempotent', Idempotent('order'), PrimitiveConfigError],
  ['OnlyLeader', OnlyLeader('order'), PrimitiveConfigError],
  ['ScheduledLock', ScheduledLock('order', { atMostFor: '1m', atLeastFor: 0 }), PrimitiveConfigError],
])('@%s', (name, decorator, ConfigError) => {
  it('is refused on a property, with the remedy', () => {
    const declare = () => {
      class Orders {
        @decorator
        ship = async () => {};
      }
      return Orders;
    };
    expect(declare).toThrow(
      new ConfigError(
        `@${name} stands on the property Orders.ship, whose value it cannot wrap: each instance has its own; write a ` +
          'method, async ship() { ... }, and put it there',
      ),
    );
    expect(declare).toThrow(ConfigError);
  });

  it('is refused on a class, where applyDecorators lets it stand', () => {
    const declare = () => {
      @applyDecorators(decorator)
      class Orders {}
      return Orders;
    };
    expect(declare).toThrow(new ConfigError(`@${name} stands on the class Orders; put it on its methods`));
  });

  it('is refused as a standard decorator, with the remedy', () => {
    const method = async () => {};
    const declare = () => (decorator as (...given: unknown[]) => void)(method, { kind: 'method', name: 'ship' });
    expect(declare).toThrow(
      new ConfigError(
        `@${name} was called as a standard decorator, which cannot see parameters; set "experimentalDecorators" in the ` +
          'compilerOptions of tsconfig.json, as Nest needs it',
      ),
    );
  });

  it('is refused on an accessor', () => {
    const descriptor: PropertyDescriptor = { get: () => 1 };
    class Orders {}
    expect(() => (decorator as MethodDecorator)(Orders.prototype, 'ship', descriptor)).toThrow(
      new ConfigError(`@${name} stands on Orders.ship, which is not a method`),
    );
  });
});
