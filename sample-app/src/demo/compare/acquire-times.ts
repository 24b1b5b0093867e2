import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { build } from 'hdr-histogram-js';
import { LockService, RedisLockModule } from 'nest-redis-lock';
import { openLockBackend, type LockStore } from '../../lock-backend.js';
import { LOCK_TTL } from '../../settings.js';

/** Milliseconds from the call to the lock. */
export interface AcquireTimes {
  readonly p50: number;
  readonly p99: number;
}

const WARM_UP = 50;
const LOCKS = 300;

/** Takes one lock after the other, which nobody else wants. */
export async function acquireTimes(store: LockStore): Promise<AcquireTimes> {
  const backend = await openLockBackend(store, LOCK_TTL);
  const module = RedisLockModule.forRoot({ backend, cache: false, prefix: 'acquire' });
  const app = await NestFactory.createApplicationContext(module, { logger: ['error', 'warn'], abortOnError: false });
  try {
    const locks = app.get(LockService);
    const times = build();
    for (let count = 0; count < WARM_UP + LOCKS; count++) {
      const start = performance.now();
      const lock = await locks.acquire(`lock-${count % WARM_UP}`, { ttl: LOCK_TTL });
      if (count >= WARM_UP) times.recordValue((performance.now() - start) * 1_000);
      await lock.release();
    }
    return { p50: times.getValueAtPercentile(50) / 1_000, p99: times.getValueAtPercentile(99) / 1_000 };
  } finally {
    await app.close();
  }
}
