import 'reflect-metadata';
import { jest } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { firstValueFrom, Observable, of } from 'rxjs';
import {
  Cached,
  CacheNotWiredError,
  DistributedLock,
  LockConfigError,
  LockNotWiredError,
  memory,
  RedisLockModule,
} from 'nest-redis-lock';
import { testServices, wire } from 'nest-redis-lock/testing';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';

@Injectable()
class Stock {
  runs = 0;
  gate: Gate | undefined;

  @DistributedLock('stock')
  async take(): Promise<number> {
    this.runs += 1;
    await this.gate?.opened;
    return this.runs;
  }

  @DistributedLock('stream')
  stream(): Observable<number> {
    this.runs += 1;
    return of(this.runs);
  }

  @Cached('read')
  async read(): Promise<number> {
    this.runs += 1;
    return this.runs;
  }
}

describe('an instance made with new', () => {
  it('locks and caches in memory once it is wired', async () => {
    const stock = wire(new Stock());
    expect(await stock.take()).toBe(1);
    expect([await stock.read(), await stock.read()]).toEqual([2, 2]);
    expect(await firstValueFrom(stock.stream())).toBe(3);
  });

  it('excludes others that have the same services, and no others', async () => {
    const services = testServices({ defaults: { wait: 0 } });
    const [one, two] = [wire(new Stock(), services), wire(new Stock(), services)];
    one.gate = new Gate();
    const taking = one.take();
    await eventually(() => services.locks.isLocked('stock'));
    await expect(two.take()).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    expect(await wire(new Stock()).take()).toBe(1);
    one.gate.open();
    await taking;
    await services.close();
  });

  it('takes each service of the same memory in its constructor', async () => {
    const services = testServices();
    const { locks, cache, jobs, semaphores, idempotency, rateLimits, latches } = services;
    await locks.withLock('all', () => cache.set('all', 1, { ttl: '1m' }));
    expect(await cache.get('all')).toBe(1);
    expect(await jobs.run('all', { atMostFor: '1m', atLeastFor: 0 }, async () => 2)).toBe(2);
    expect(await semaphores.withPermit('all', { permits: 1 }, async () => 3)).toBe(3);
    expect(await idempotency.run('all', {}, async () => 4)).toBe(4);
    expect(await idempotency.run('all', {}, async () => 5)).toBe(4);
    expect(await rateLimits.take('all', { limit: 1, per: '1h' })).toMatchObject({ allowed: true, remaining: 0 });
    await latches.define('all', { count: 1, ttl: '1m' });
    const opened = latches.await('all');
    await latches.countDown('all');
    await opened;
    await services.close();
    await expect(latches.count('all')).rejects.toThrow('the application has ended');
  });

  it('without decorated methods is refused', () => {
    class Plain {}
    expect(() => wire(new Plain())).toThrow(LockConfigError);
  });
});

describe('under a mock that calls nothing', () => {
  const mocks: [string, object][] = [
    ['functions', { withLock: jest.fn(), getOrSet: jest.fn() }],
    ['promises', { withLock: jest.fn(async () => undefined), getOrSet: jest.fn(async () => undefined) }],
    ['nothing', { other: 1, getOrSet: jest.fn() }],
  ];

  it.each(mocks)('of %s, a method fails and does not run', async (_what, mock) => {
    const module = await Test.createTestingModule({ providers: [Stock] })
      .useMocker(() => mock)
      .compile();
    const stock = module.get(Stock);
    await expect(stock.take()).rejects.toThrow(LockNotWiredError);
    await expect(firstValueFrom(stock.stream())).rejects.toThrow(/Import RedisLockTestingModule instead/);
    await expect(stock.read()).rejects.toThrow(CacheNotWiredError);
    expect(stock.runs).toBe(0);
  });

  it('a mock that calls the method works', async () => {
    const withLock = async (_key: string, _options: object, body: () => Promise<unknown>) => body();
    const getOrSet = async () => 'mocked';
    const module = await Test.createTestingModule({ providers: [Stock] })
      .useMocker(() => ({ withLock, getOrSet }))
      .compile();
    expect(await module.get(Stock).take()).toBe(1);
    expect(await module.get(Stock).read()).toBe('mocked');
  });
});

it('an application that is closed right after its boot does not warn that it starts without Redis', async () => {
  const logger = new RecordingLogger();
  const module = { module: class Root {}, imports: [RedisLockModule.forRoot({ redis: 'redis://127.0.0.1:1' })] };
  const app = await NestFactory.createApplicationContext(module, { logger });
  await app.close();
  await new Promise((resolve) => setImmediate(resolve));
  expect(logger.matching(/starts without it/)).toEqual([]);
});

describe('a second RedisLockModule.forRoot in one application', () => {
  it.each([
    [1, 0],
    [2, 1],
    [3, 1],
  ])('of %d makes %d warning at start-up', async (count, lines) => {
    const logger = new RecordingLogger();
    const imports = Array.from({ length: count }, () => RedisLockModule.forRoot({ backend: memory() }));
    const app = await NestFactory.createApplicationContext({ module: class Root {}, imports }, { logger });
    expect(logger.matching(/imported with options \d times.*waits for itself/)).toHaveLength(lines);
    await app.close();
  });
});
