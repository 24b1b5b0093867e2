import { Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import {
  DistributedLock,
  LockBackendError,
  LockConfigError,
  LockService,
  memory,
  RedisLockModule,
} from 'nest-redis-lock';
import { Test, type TestingModule } from '@nestjs/testing';
import { firstValueFrom, NEVER, Observable, take, toArray } from 'rxjs';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { startLockApp } from '../../support/lock-app.js';
import { eventually } from '../../support/eventually.js';

@Injectable()
class Streams {
  made = 0;

  @DistributedLock('stream')
  numbers(count: number): Observable<number> {
    return new Observable((subscriber) => {
      for (let number = 0; number < count && !subscriber.closed; number += 1) {
        this.made += 1;
        subscriber.next(number);
      }
      subscriber.complete();
    });
  }

  @DistributedLock('endless')
  endless(): Observable<number> {
    return NEVER;
  }

  @DistributedLock('later')
  async later(make: () => unknown): Promise<unknown> {
    return make();
  }
}

describe('a method with a lock', () => {
  let module: TestingModule;
  let streams: Streams;
  let locks: LockService;

  beforeEach(async () => {
    module = await Test.createTestingModule({
      imports: [RedisLockModule.forRoot({ backend: memory() })],
      providers: [Streams],
    }).compile();
    await module.init();
    streams = module.get(Streams);
    locks = module.get(LockService);
  });
  afterEach(() => module.close());

  it.each([1, 3])('that emits all at once stops after take(%d), and gives the lock back', async (count) => {
    const values = await firstValueFrom(streams.numbers(1_000_000).pipe(take(count), toArray()));
    expect(values).toEqual(Array.from({ length: count }, (_, index) => index));
    expect(streams.made).toBe(count);
    await eventually(async () => !(await locks.isLocked('stream')));
  });

  it('gives the lock back when its reader leaves at any moment', async () => {
    for (let turns = 0; turns < 12; turns += 1) {
      const reader = streams.endless().subscribe();
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
      reader.unsubscribe();
    }
    await eventually(async () => !(await locks.isLocked('endless')));
  });

  it('that emits all at once is read to its end by a subscriber that wants all', async () => {
    expect(await firstValueFrom(streams.numbers(5).pipe(toArray()))).toEqual([0, 1, 2, 3, 4]);
    await eventually(async () => !(await locks.isLocked('stream')));
  });

  it.each<[string, () => unknown]>([
    [
      'an async generator',
      async function* () {
        yield 1;
      },
    ],
    [
      'a generator',
      function* () {
        yield 1;
      },
    ],
    ['an async iterable', () => ({ [Symbol.asyncIterator]: () => ({ next: async () => ({ done: true, value: 1 }) }) })],
    ['a web stream', () => new ReadableStream()],
  ])('does not resolve to %s, which is read after the lock', async (_what, make) => {
    await expect(streams.later(make)).rejects.toThrow(LockConfigError);
    await expect(streams.later(make)).rejects.toThrow(
      /Streams\.later resolved to an iterable, which its caller reads after the lock/,
    );
    expect(await locks.isLocked('later')).toBe(false);
  });

  it.each<[string, unknown]>([
    ['a list', [1]],
    ['a map', new Map()],
    ['text', 'text'],
    ['null', null],
  ])('resolves to %s', async (_what, value) => {
    expect(await streams.later(() => value)).toBe(value);
  });
});

it('a client that is inside of a MULTI of its owner is named as the cause', async () => {
  const server = await startRedisServer();
  const client = new Redis(server.url);
  try {
    await using app = await startLockApp({ redis: client, cache: false });
    await app.locks.withLock('warm', async () => {});
    await client.multi({ pipeline: false });
    let ran = false;
    const call = app.locks.withLock('queued', { wait: 0 }, async () => void (ran = true));
    await expect(call).rejects.toThrow(LockBackendError);
    await expect(app.locks.inspect('queued')).rejects.toThrow(/MULTI.*client\.duplicate\(\)/);
    expect(ran).toBe(false);
    await client.exec();
    await eventually(async () => !(await app.locks.isLocked('queued')));
  } finally {
    client.disconnect();
    await server.stop();
  }
});
