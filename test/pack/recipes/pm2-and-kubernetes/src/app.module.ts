import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Get, Module, Post } from '@nestjs/common';
import { DistributedLock, RedisLockModule } from 'nest-redis-lock';

@Controller()
class OrdersController {
  @Post('ship')
  @DistributedLock('slow-order')
  async ship(): Promise<string> {
    console.log('shipping');
    await sleep(500);
    return 'shipped';
  }

  @Get()
  alive(): string {
    return 'alive';
  }
}

@Module({
  imports: [RedisLockModule.forRoot({ redis: process.env['REDIS_URL'] as string })],
  controllers: [OrdersController],
})
export class AppModule {}
