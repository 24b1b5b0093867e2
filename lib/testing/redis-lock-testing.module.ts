import { Module, type DynamicModule } from '@nestjs/common';
import { memory } from '../backends/memory/memory-lock-backend.js';
import { RedisLockModule } from '../redis-lock.module.js';
import type { RedisLockModuleOptions } from '../redis-lock.options.js';

/**
 * `RedisLockModule` without a server, for unit tests of decorated classes: real locks and a real cache, in the memory
 * of the application under test. Every application that imports it has locks of its own.
 */
@Module({
  imports: [RedisLockModule.forRootAsync({ useFactory: () => ({ backend: memory() }) })],
})
export class RedisLockTestingModule {
  /** Takes options other than the defaults. */
  static forRoot(options: Omit<RedisLockModuleOptions, 'redis'> = {}): DynamicModule {
    return {
      module: ConfiguredTestingModule,
      imports: [RedisLockModule.forRootAsync({ useFactory: () => ({ backend: memory(), ...options }) })],
    };
  }
}

@Module({})
class ConfiguredTestingModule {}
