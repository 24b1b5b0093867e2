import { memory, RedisLockModule, type LockService } from 'nest-redis-lock';
import { testServices } from 'nest-redis-lock/testing';

RedisLockModule.forRoot({ backend: memory(), cache: { memory: {} } });
const locks: LockService = testServices().locks;
// @ts-expect-error: the types of the package are there.
void locks.withLock(7, async () => {});
