import 'reflect-metadata';
import { Inject, Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { DistributedLock, LockConfigError, LockService, LockUpgradeError, memory } from 'nest-redis-lock';
import { RedisLockTestingModule } from 'nest-redis-lock/testing';
import { resolveModuleOptions } from '../../../lib/redis-lock.options.js';
import { Gate } from '../../support/gate.js';

@Injectable()
class Prices {
  readonly entered: Gate[] = [];
  gate = new Gate();

  @DistributedLock('prices:<0>', { mode: 'read' })
  async quote(_list: string): Promise<string> {
    return 'read';
  }

  @DistributedLock('prices:<0>', { mode: 'read' })
  async quoteSlowly(_list: string, entered: Gate): Promise<void> {
    entered.open();
    await this.gate.opened;
  }

  @DistributedLock('prices:<0>')
  async import(list: string): Promise<string> {
    return this.quote(list);
  }
}

@Injectable()
class Shop {
  constructor(@Inject(Prices) private readonly prices: Prices) {}

  @DistributedLock('prices:<0>', { mode: 'read' })
  async importWhileReading(list: string): Promise<string> {
    return this.prices.import(list);
  }

  @DistributedLock('prices:<0>', { mode: 'read' })
  async quoteWhileReading(list: string): Promise<string> {
    return this.prices.quote(list);
  }
}

async function start() {
  const testing = Test.createTestingModule({ imports: [RedisLockTestingModule.forRoot()], providers: [Prices, Shop] });
  const app = await testing.compile();
  await app.init();
  return { app, prices: app.get(Prices), shop: app.get(Shop), locks: app.get(LockService) };
}

it('lets decorated methods read together, and one write alone', async () => {
  const { app, prices, locks } = await start();
  const [one, two] = [new Gate(), new Gate()];
  const calls = [prices.quoteSlowly('today', one), prices.quoteSlowly('today', two)];
  await Promise.all([one.opened, two.opened]);
  const writing = prices.import('today');
  expect(await locks.tryAcquire('prices:today')).toBeNull();
  prices.gate.open();
  await Promise.all(calls);
  expect(await writing).toBe('read');
  expect(await locks.isLocked('prices:today')).toBe(false);
  await app.close();
});

it('lets a decorated method read inside of one that reads, and refuses one that writes', async () => {
  const { app, shop, locks } = await start();
  expect(await shop.quoteWhileReading('today')).toBe('read');
  const refused = shop.importWhileReading('today');
  await expect(refused).rejects.toBeInstanceOf(LockUpgradeError);
  await expect(refused).rejects.toMatchObject({ code: 'LOCK_UPGRADE', keys: ['prices:today'], statusCode: 500 });
  await expect(refused).rejects.toThrow(/from the beginning/);
  expect(await locks.isLocked('prices:today')).toBe(false);
  await app.close();
});

it('refuses to read by default: locks that say nothing are held alone', () => {
  const options = { backend: memory(), defaults: { mode: 'read' } } as const;
  expect(() => resolveModuleOptions(options)).toThrow(LockConfigError);
  expect(() => resolveModuleOptions(options)).toThrow(/defaults\.mode/);
});
