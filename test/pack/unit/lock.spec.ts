import { setTimeout as sleep } from 'node:timers/promises';
import { Injectable, type INestApplicationContext } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { DistributedLock, LockTimeoutError, RedisLockModule } from 'nest-redis-lock';
import { RedisLockTestingModule } from 'nest-redis-lock/testing';

@Injectable()
class Orders {
  private inside = 0;

  @DistributedLock('order:<0>')
  async ship(_id: string): Promise<number> {
    const others = this.inside++;
    await sleep(50);
    this.inside--;
    return others;
  }

  @DistributedLock('order:<0>', { wait: 0 })
  async tryToShip(_id: string): Promise<void> {}
}

describe.each([
  ['in memory', () => RedisLockTestingModule],
  ['on Redis', () => RedisLockModule.forRoot({ redis: process.env['REDIS_URL'] as string })],
])('%s', (_name, lockModule) => {
  let app: INestApplicationContext;
  let orders: Orders;

  beforeEach(async () => {
    const module = await Test.createTestingModule({ imports: [lockModule()], providers: [Orders] }).compile();
    app = await module.init();
    orders = app.get(Orders);
  });

  afterEach(() => app.close());

  it('lets one in at a time', async () => {
    expect(await Promise.all([orders.ship('1'), orders.ship('1'), orders.ship('1')])).toEqual([0, 0, 0]);
  });

  it('refuses what does not want to wait', async () => {
    const shipped = orders.ship('2');
    await expect(orders.tryToShip('2')).rejects.toBeInstanceOf(LockTimeoutError);
    await shipped;
  });
});
