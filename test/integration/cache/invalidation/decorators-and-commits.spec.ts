import { AsyncLocalStorage } from 'node:async_hooks';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { CacheEvict, CachePut, CacheService, type CacheOptions, RedisLockModule } from 'nest-redis-lock';
import { memory } from 'nest-redis-lock/memory';
import { eventually } from '../../../support/eventually.js';

@Injectable()
class Rows {
  @CacheEvict('row')
  async evict(): Promise<void> {}

  @CacheEvict('row', { onRedisError: 'throw' })
  async evictOrThrow(): Promise<void> {}

  @CachePut('row')
  async put(): Promise<string> {
    return 'new';
  }

  @CachePut('row', { unless: () => true })
  async putUnless(): Promise<string> {
    return 'new';
  }

  @CachePut('row', { condition: () => false })
  async putIf(): Promise<string> {
    return 'new';
  }

  @CachePut('row', {
    value: () => {
      throw new Error('no value');
    },
  })
  async putNoValue(): Promise<string> {
    return 'new';
  }
}

let module: TestingModule | undefined;

async function rows(cache: CacheOptions = {}) {
  module = await Test.createTestingModule({
    imports: [RedisLockModule.forRoot({ backend: memory(), cache })],
    providers: [Rows],
  }).compile();
  await module.init();
  const service = module.get(CacheService);
  await service.set('row', 'old');
  return { rows: module.get(Rows), cache: service };
}

afterEach(() => module?.close());

describe('@CachePut that stores nothing', () => {
  it.each(['putUnless', 'putIf', 'putNoValue'] as const)('deletes the value from before: %s', async (method) => {
    const { rows: service, cache } = await rows();
    await service[method]().catch(() => {});
    expect(await cache.get('row')).toBeUndefined();
  });
});

describe('cache.afterCommit', () => {
  it.each([
    ['evict', undefined],
    ['put', 'new'],
    ['putUnless', undefined],
  ] as const)('takes what %s would do', async (method, after) => {
    const open: (() => Promise<void>)[] = [];
    const { rows: service, cache } = await rows({ afterCommit: (run) => open.push(run) > 0 });
    await service[method]();
    expect(await cache.get('row')).toBe('old');
    for (const run of open) await run();
    expect(await cache.get('row')).toBe(after);
  });

  it('gets a run that does not reject, though the application has ended', async () => {
    const open: (() => Promise<void>)[] = [];
    const { rows: service } = await rows({ afterCommit: (run) => open.push(run) > 0 });
    await service.evictOrThrow();
    expect(open).toHaveLength(1);
    await module?.close();
    for (const run of open) await expect(run()).resolves.toBeUndefined();
  });

  it.each([
    ['there is no transaction', () => false],
    [
      'it throws',
      () => {
        throw new Error('no context');
      },
    ],
  ])('evicts at once if %s', async (_, afterCommit) => {
    const { rows: service, cache } = await rows({ afterCommit });
    await service.evict();
    expect(await cache.get('row')).toBeUndefined();
  });
});

describe('a refresh in the background', () => {
  const request = new AsyncLocalStorage<string>();
  const due = { ttl: 1, jitter: 0, staleTtl: '1h' } as const;

  async function refreshedIn(cache: CacheService): Promise<unknown[]> {
    const seen: unknown[] = [];
    await cache.set('one', 'old', due);
    await cache.set('many', 'old', due);
    await eventually(async () => (await cache.inspect('many'))?.state === 'stale');
    await request.run('ended', async () => {
      await cache.getOrSet('one', () => seen.push(request.getStore()), due);
      await cache.getOrSetMany(['many'], async () => [seen.push(request.getStore())], due);
    });
    await eventually(() => seen.length === 2);
    return seen;
  }

  it('runs outside of the context of its caller', async () => {
    const { cache } = await rows();
    expect(await refreshedIn(cache)).toEqual([undefined, undefined]);
  });

  it('runs in the context that cache.refreshContext opens', async () => {
    const { cache } = await rows({ refreshContext: (run, key) => request.run(`of ${key}`, run) });
    expect(await refreshedIn(cache)).toEqual(['of one', 'of many']);
  });
});
