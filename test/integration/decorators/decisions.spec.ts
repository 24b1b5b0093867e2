import {
  Cached,
  CacheConfigError,
  CacheEvict,
  CachePut,
  CacheService,
  DistributedLock,
  Idempotent,
  memory,
  RateLimit,
  Semaphore,
} from 'nest-redis-lock';
import { testServices, wire } from 'nest-redis-lock/testing';
import { firstValueFrom, Observable, of } from 'rxjs';
import { cacheApp } from '../../support/cache-app.js';
import { eventually } from '../../support/eventually.js';

/** As an application without types, or one whose dependency became asynchronous, gives it. */
const promising = (answer: boolean) => (async () => answer) as unknown as () => boolean;

const throwing = (row: unknown): boolean => {
  if (row === 'unknown') throw new Error('no such row');
  return false;
};

class Rows {
  row = 'old';
  ran = 0;

  @Cached('row')
  async read(): Promise<string> {
    return this.row;
  }

  @Cached('condition', { condition: promising(false) })
  async readOnCondition(): Promise<number> {
    return ++this.ran;
  }

  @Cached('unless', { unless: promising(false) })
  async readUnless(): Promise<number> {
    return ++this.ran;
  }

  @Cached('brief', { ttl: 1, staleTtl: '1h', unless: throwing })
  async readBriefly(): Promise<unknown> {
    return this.row === 'stream' ? of('row') : this.row;
  }

  @CachePut('row', { condition: promising(false) })
  async putOnCondition(): Promise<string> {
    return (this.row = 'put');
  }

  @CachePut('row', { unless: promising(false) })
  async putUnless(): Promise<string> {
    return (this.row = 'new');
  }

  @CachePut((row?: { id: string }) => row!.id, { condition: (row) => row !== undefined })
  async putGiven(_row?: { id: string }): Promise<string> {
    return (this.row = 'new');
  }

  @CacheEvict('row')
  async write(): Promise<string> {
    return (this.row = 'new');
  }

  @Idempotent('key', { keepErrors: promising(false) })
  async fail(): Promise<void> {
    throw new Error(`run ${++this.ran}`);
  }
}

describe('a function of the application that decides', () => {
  const open = async (cache = {}) => {
    const app = await cacheApp({ providers: [Rows] }, { module: { cache } });
    return { ...app, rows: app.app.get(Rows), cache: app.app.get(CacheService) };
  };
  const refusal = (option: string) => new RegExp(`^Option "${option}" returned a promise.*answers at once`);

  it('is refused a promise by condition and unless of @Cached', async () => {
    const { rows, cache, close } = await open();
    await expect(rows.readOnCondition()).rejects.toThrow(refusal('condition'));
    expect(rows.ran).toBe(0);
    const refused = rows.readUnless();
    await expect(refused).rejects.toBeInstanceOf(CacheConfigError);
    await expect(refused).rejects.toThrow(refusal('unless'));
    expect(await cache.get('unless')).toBeUndefined();
    await close();
  });

  it('is refused a promise by condition and unless of @CachePut, and the value from before is evicted', async () => {
    const { rows, close } = await open();
    expect(await rows.read()).toBe('old');
    await expect(rows.putOnCondition()).rejects.toThrow(refusal('condition'));
    expect(rows.row).toBe('old');
    await expect(rows.putUnless()).rejects.toThrow(refusal('unless'));
    expect(await rows.read()).toBe('new');
    await close();
  });

  it.each(['stream', 'unknown'])('leaves no value from before where a refresh is refused: %s', async (row) => {
    const { rows, cache, close } = await open();
    expect(await rows.readBriefly()).toBe('old');
    await eventually(async () => (await cache.inspect('brief'))?.state === 'stale');
    rows.row = row;
    await rows.readBriefly().catch(() => {});
    await eventually(async () => (await cache.inspect('brief')) === null);
    await close();
  });

  it('does not keep a method from running whose key @CachePut then cannot make', async () => {
    const { rows, close } = await open();
    expect(await rows.putGiven()).toBe('new');
    await close();
  });

  it.each([
    ['a promise', promising(true)],
    ['a text', () => 'no' as unknown as boolean],
    ['nothing', () => undefined as unknown as boolean],
  ])('answers with %s to cache.afterCommit: evicts at once, and is logged', async (_what, afterCommit) => {
    const { rows, logger, close } = await open({ afterCommit });
    expect(await rows.read()).toBe('old');
    await rows.write();
    expect(await rows.read()).toBe('new');
    expect(logger.matching(/cache\.afterCommit.*give/)).toHaveLength(1);
    await close();
  });

  it('answers with a promise to keepErrors: no error is kept, and that is logged', async () => {
    const { rows, logger, close } = await open();
    await expect(rows.fail()).rejects.toThrow('run 1');
    await expect(rows.fail()).rejects.toThrow('run 2');
    expect(logger.matching(/keepErrors.*promise/).length).toBeGreaterThan(0);
    await close();
  });
});

it('an Observable emits what the promise of onBusy and of onLimit resolves to', async () => {
  class Streams {
    @DistributedLock('held', { wait: 0, reentrant: false, onBusy: async () => 'busy' })
    whileHeld(): Observable<string> {
      return of('free');
    }

    @RateLimit('limited', { limit: 1, per: '1h', onLimit: async () => 'limited' })
    limited(): Observable<string> {
      return of('free');
    }
  }
  const services = testServices({ backend: memory(), cache: false });
  const streams = wire(new Streams(), services);
  const held = await services.locks.acquire('held');
  expect(await firstValueFrom(streams.whileHeld())).toBe('busy');
  expect(await firstValueFrom(streams.limited())).toBe('free');
  expect(await firstValueFrom(streams.limited())).toBe('limited');
  await held.release();
});

describe('a function that must answer at once, and returns a promise that rejects', () => {
  const late = (async () => {
    throw new Error('no tenant');
  }) as unknown as (...args: unknown[]) => never;
  const unhandled: unknown[] = [];
  const remember = (error: unknown) => void unhandled.push(error);
  beforeAll(() => process.on('unhandledRejection', remember));
  afterAll(() => process.off('unhandledRejection', remember));

  it.each([
    ['the key of a lock', () => DistributedLock(late)],
    ['one of its keys', () => DistributedLock(() => [late()])],
    ['the signal of a lock', () => DistributedLock('a', { signal: late })],
    ['the key of a semaphore', () => Semaphore(late, { permits: 1 })],
    ['the signal of a semaphore', () => Semaphore('a', { permits: 1, signal: late })],
    ['the key of a value', () => Cached(late)],
    ['the tags of a value', () => Cached('a', { tags: late })],
    ['the signal of a read', () => Cached('a', { signal: late })],
    ['forceFresh', () => Cached('a', { forceFresh: late })],
    ['the key that is put', () => CachePut(late)],
    ['the key that is evicted', () => CacheEvict(late)],
    ['the key of an idempotent method', () => Idempotent(late)],
    ['its fingerprint', () => Idempotent('a', { fingerprint: late })],
    ['a part of its fingerprint', () => Idempotent('a', { fingerprint: () => ({ rows: [late()] }) })],
    ['the key of a rate limit', () => RateLimit(late, { limit: 1, per: '1h' })],
  ] as const)('is refused, and ends no process: %s', async (_what, decorator) => {
    class Shop {
      async call(): Promise<string> {
        return 'ran';
      }
    }
    const descriptor = Object.getOwnPropertyDescriptor(Shop.prototype, 'call')!;
    (decorator() as MethodDecorator)(Shop.prototype, 'call', descriptor);
    Object.defineProperty(Shop.prototype, 'call', descriptor);
    const services = testServices({ backend: memory() });
    await expect(wire(new Shop(), services).call()).rejects.toThrow(/promise/i);
    await new Promise(setImmediate);
    expect(unhandled).toEqual([]);
  });
});

describe('a decorator refuses', () => {
  const decorators = { Cached, CachePut, CacheEvict, DistributedLock, Idempotent } as unknown as Record<
    string,
    (key: unknown, options?: unknown) => unknown
  >;
  const names = Object.keys(decorators);

  it.each(
    names.flatMap((name) => [null, new Map(), [], 'ttl', Promise.resolve({ ttl: '1m' })].map((given) => [name, given])),
  )('@%s: options that are none, %p', (name, given) => {
    expect(() => decorators[name as string]?.('k', given)).toThrow(/Option "options" is .*; give an object of/);
  });

  it.each([...names, 'RateLimit'].flatMap((name) => [Object.create(null), Symbol('k'), 5].map((key) => [name, key])))(
    '@%s: a key that is no text, %p',
    (name, key) => {
      const decorator = decorators[name as string] ?? (RateLimit as never);
      expect(() => decorator(key, name === 'RateLimit' ? { limit: 5, per: '1m' } : {})).toThrow(
        /Key template is .*; give a name or a template/,
      );
    },
  );
});
