// What the repeat of an idempotent call costs: kept results read beside a plain CacheService.get, in one run on one
// Redis. `node test/bench/idempotency.mjs [redis URL]` after a build; ops/s, the median of 5 rounds in turns.
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { CacheService, IdempotencyService, RedisLockModule } from 'nest-redis-lock';

const [url = 'redis://127.0.0.1:6379'] = process.argv.slice(2);
const ROUNDS = 5;
const MS = 1_000;
const KEYS = 1_000;
const value = { id: 7, total: 1_999, items: ['a', 'b', 'c'] };

class Root {}
const module = { module: Root, imports: [RedisLockModule.forRoot({ redis: url, prefix: 'bench-idempotency' })] };
const app = await NestFactory.createApplicationContext(module, { logger: ['error'] });
const [cache, service] = [app.get(CacheService), app.get(IdempotencyService)];

const neverRuns = () => Promise.reject(new Error('the method ran again'));
const operations = {
  'CacheService.get': (key) => cache.get(key),
  'IdempotencyService.run, kept': (key) => service.run(key, { ttl: '10m' }, neverRuns),
  'the same with a fingerprint': (key) => service.run(`f${key}`, { ttl: '10m', fingerprint: value }, neverRuns),
};

async function opsPerSecond(operation, callers) {
  const end = performance.now() + MS;
  let done = 0;
  const call = async () => {
    for (; performance.now() < end; done++) await operation(`key:${done % KEYS}`);
  };
  await Promise.all(Array.from({ length: callers }, call));
  return (done * 1_000) / MS;
}

for (let number = 0; number < KEYS; number++) {
  const key = `key:${number}`;
  await cache.set(key, value, { ttl: '10m' });
  await service.run(key, { ttl: '10m' }, async () => value);
  await service.run(`f${key}`, { ttl: '10m', fingerprint: value }, async () => value);
}
for (const callers of [1, 100]) {
  const rounds = Object.fromEntries(Object.keys(operations).map((name) => [name, []]));
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, operation] of Object.entries(operations))
      rounds[name].push(await opsPerSecond(operation, callers));
  }
  for (const [name, figures] of Object.entries(rounds)) {
    const median = figures.toSorted((a, b) => a - b)[Math.floor(ROUNDS / 2)];
    console.log(
      `${String(callers).padStart(3)} callers  ${name.padEnd(30)} ${Math.round(median).toLocaleString('en')} ops/s`,
    );
  }
}
await app.close();
