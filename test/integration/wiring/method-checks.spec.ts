import 'reflect-metadata';
import { Controller, Injectable, Module, Next, type Provider, Req, Res, Scope, type Type } from '@nestjs/common';
import { ModulesContainer, NestFactory } from '@nestjs/core';
import {
  CacheConfigError,
  Cached,
  CacheEvict,
  CachePut,
  DistributedLock,
  Idempotent,
  LeaderElection,
  LockConfigError,
  memory,
  OnlyLeader,
  PrimitiveConfigError,
  RateLimit,
  RedisLockModule,
  ScheduledLock,
  Semaphore,
} from 'nest-redis-lock';
import { cacheApp } from '../../support/cache-app.js';
import { RecordingLogger } from '../../support/recording-logger.js';

async function warnings(providers: Parameters<typeof cacheApp>[0] & {}, cache = {}): Promise<string[]> {
  await using app = await cacheApp(providers, { module: { cache } });
  return app.logger.lines.filter(({ level }) => level === 'warn').map(({ text }) => text);
}

describe('a method with parameters and one key for all of them', () => {
  @Injectable()
  class Users {
    @Cached('me')
    async me(userId: string): Promise<string> {
      return userId;
    }

    @Cached('all')
    async all(): Promise<string> {
      return 'all';
    }

    @Cached(() => 'menu')
    async menu(_request: object): Promise<string> {
      return 'menu';
    }

    @Cached('user:<0>')
    async one(userId: string): Promise<string> {
      return userId;
    }

    @CacheEvict('all')
    async evict(userId: string): Promise<string> {
      return userId;
    }

    @CachePut('all')
    async put(userId: string): Promise<string> {
      return userId;
    }
  }

  it('is warned of, with its name and the remedy', async () => {
    const lines = await warnings({ providers: [Users] });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(
      /^Users\.me is cached under one key, "me", whatever its arguments are: .*"me:<0>".*\(\) => 'me'/,
    );
  });

  it('is found in controllers, in factories, and where its parameters have defaults', async () => {
    @Controller('users')
    class UsersController extends Users {}
    class Defaults {
      @Cached('page')
      async page(_number = 1): Promise<string> {
        return 'page';
      }

      @Cached('rest')
      async rest(..._ids: string[]): Promise<string> {
        return 'rest';
      }
    }
    const lines = await warnings({
      controllers: [UsersController],
      providers: [{ provide: 'defaults', useFactory: () => new Defaults() }],
    });
    expect(new Set(lines.map((line) => line.split(' ', 1)[0]))).toEqual(
      new Set(['Defaults.page', 'Defaults.rest', 'UsersController.me']),
    );
  });
});

describe('methods that share a key template', () => {
  @Injectable()
  class Products {
    @Cached('item:<0>', { ttl: '5m' })
    async find(id: string): Promise<string> {
      return `product ${id}`;
    }
  }

  @Injectable()
  class Orders {
    @Cached('item:<0>', { ttl: '5m' })
    async find(id: string): Promise<string> {
      return `order ${id}`;
    }
  }

  it('are warned of, also with equal options', async () => {
    const lines = await warnings({ providers: [Products, Orders] });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^Products\.find and Orders\.find are cached under one key template, "item:<0>", so each/);
    expect(await warnings({ providers: [Products, { provide: 'again', useExisting: Products }] })).toEqual([]);
  });

  it('are warned of where two classes inherit one method', async () => {
    abstract class Repository {
      @Cached('row:<0>')
      async find(id: string): Promise<string> {
        return `${this.constructor.name} ${id}`;
      }
    }
    @Injectable()
    class Cats extends Repository {}
    @Injectable()
    class Dogs extends Repository {}
    @Injectable()
    class Birds extends Repository {
      override async find(id: string): Promise<string> {
        return `bird ${id}`;
      }
    }
    expect(await warnings({ providers: [Cats, Birds] })).toEqual([]);
    const lines = await warnings({ providers: [Cats, Dogs, Birds] });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^Cats\.find and Dogs\.find are cached under one key template, "row:<0>"/);
  });
});

describe('a time of less than a second as a bare number', () => {
  @Injectable()
  class Rates {
    @Cached('rate:<0>', { ttl: 300, nullTtl: 30, staleTtl: 0 })
    async rate(currency: string): Promise<string> {
      return currency;
    }

    @Cached((currency: string) => `spread:${currency}`, {
      ttl: '300ms',
      nullTtl: 0,
      staleTtl: 1_000,
      loaderTimeout: 500,
    })
    async spread(currency: string): Promise<string> {
      return currency;
    }

    @Cached((currency: string) => `fee:${currency}`, { ttl: 60 })
    async fee(currency: string): Promise<string> {
      return currency;
    }

    @CachePut('rate:<0>', { ttl: 5 })
    async put(currency: string): Promise<string> {
      return currency;
    }
  }

  it('is warned of once for each place, with both remedies', async () => {
    const lines = await warnings({ providers: [Rates] });
    expect(lines).toEqual([
      `@Cached of Rates.rate: "ttl: 300" is 300 milliseconds; write '300s' where seconds are meant, else '300ms'`,
      `@Cached of Rates.rate: "nullTtl: 30" is 30 milliseconds; write '30s' where seconds are meant, else '30ms'`,
      `@Cached of Rates.fee: "ttl: 60" is 60 milliseconds; write '60s' where seconds are meant, else '60ms'`,
      `@CachePut of Rates.put: "ttl: 5" is 5 milliseconds; write '5s' where seconds are meant, else '5ms'`,
    ]);
  });

  it('is warned of in the options of the module', async () => {
    const lines = await warnings({}, { defaults: { ttl: 60, staleTtl: '30ms' }, l1: { ttl: 10 } });
    expect(lines).toEqual([
      `"cache.defaults.ttl: 60" is 60 milliseconds; write '60s' where seconds are meant, else '60ms'`,
      `"cache.l1.ttl: 10" is 10 milliseconds; write '10s' where seconds are meant, else '10ms'`,
    ]);
    expect(await warnings({}, { defaults: { ttl: '60ms', nullTtl: 0 }, commandTimeout: 300 })).toEqual([]);
  });
});

describe('the check of named backends', () => {
  @Injectable()
  class Orders {
    @DistributedLock('order:<0>', { backend: 'critcal' })
    async place(_id: string): Promise<void> {}

    @Semaphore('payment', { permits: 5, backend: 'payments' })
    async pay(): Promise<void> {}

    @RateLimit('customer:<0>', { limit: 10, per: '1s', backend: 'limits' })
    async ask(_customer: string): Promise<void> {}

    @Idempotent('order:<0>:<this.constructor.name>', { ttl: '1h', backend: 'keys' })
    async once(_id: string): Promise<void> {}

    @ScheduledLock('nightly:<this.constructor.name>', { atMostFor: '1m', atLeastFor: 0, backend: 'jobs' })
    async report(): Promise<void> {}

    @DistributedLock('stock:<0>', { backend: 'critical' })
    async count(_sku: string): Promise<void> {}

    @DistributedLock('price:<0>')
    async price(_sku: string): Promise<void> {}
  }

  @Injectable()
  class MoreOrders extends Orders {}

  async function warningsOf(providers: Type[], modules = [RedisLockModule.forRoot(twoBackends())]): Promise<string[]> {
    class Root {}
    const logger = new RecordingLogger();
    const app = await NestFactory.createApplicationContext({ module: Root, imports: modules, providers }, { logger });
    await app.close();
    return logger.matching(/Option "backend"/);
  }

  const twoBackends = () => ({ backend: memory(), backends: { critical: memory() } });

  it('warns at the start of each decorator that names a backend which there is none of', async () => {
    const known = `give a name of the module's "backends" ("critical"); each call throws this`;
    expect(await warningsOf([Orders, MoreOrders])).toEqual([
      `@DistributedLock of Orders.place: Option "backend" is "critcal"; ${known}`,
      `@Semaphore of Orders.pay: Option "backend" is "payments"; ${known}`,
      `@RateLimit of Orders.ask: Option "backend" is "limits"; ${known}`,
      `@Idempotent of Orders.once: Option "backend" is "keys"; ${known}`,
      `@ScheduledLock of Orders.report: Option "backend" is "jobs"; ${known}`,
    ]);
  });

  it('warns of none on a method that is overridden', async () => {
    @Injectable()
    class Base {
      @DistributedLock('base', { backend: 'gone' })
      async lock(): Promise<void> {}
    }
    @Injectable()
    class Overriding extends Base {
      override async lock(): Promise<void> {}
    }
    expect(await warningsOf([Overriding])).toEqual([]);
  });

  it('warns of none where several modules have backends, any of which may serve the method', async () => {
    const modules = [
      RedisLockModule.forRoot(twoBackends()),
      RedisLockModule.forRoot({ ...twoBackends(), isGlobal: false }),
    ];
    expect(await warningsOf([Orders], modules)).toEqual([]);
  });
});

describe('the candidates of @OnlyLeader', () => {
  @Injectable()
  class Job {
    @OnlyLeader('nightly')
    async run(): Promise<string | undefined> {
      return 'ran';
    }
  }

  @Injectable({ scope: Scope.REQUEST })
  class RequestJob extends Job {}

  @Module({ imports: [RedisLockModule.forRoot({ backend: memory(), isGlobal: false })] })
  class Other {}

  @Injectable()
  class Probe {
    constructor(readonly election: LeaderElection) {}
  }

  const start = async (providers: Provider[], backends = {}) => {
    class Root {}
    const imports = [RedisLockModule.forRoot({ backend: memory(), ...backends }), Other];
    const module = { module: Root, imports, providers: [...providers, Probe] };
    const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
    const own = app.get(Probe).election;
    const modules = [...app.get(ModulesContainer).values()];
    const elections = modules.flatMap((each) => [...each.providers.values()].map(({ instance }) => instance));
    const others = elections.filter((each) => each instanceof LeaderElection && each !== own) as LeaderElection[];
    return { app, own, others, [Symbol.asyncDispose]: () => app.close() };
  };

  it.each<[string, Provider]>([
    ['a class', Job],
    ['a class of requests', RequestJob],
    ['a value', { provide: 'job', useValue: new Job() }],
  ])('stand in the module that serves %s, and in no other', async (_what, provider) => {
    await using started = await start([provider]);
    expect(started.own.candidacy('nightly')).toBeDefined();
    expect(started.others).toHaveLength(1);
    expect(started.others[0]?.candidacy('nightly')).toBeUndefined();
  });

  it('are refused with the method that names a backend which there is none of', async () => {
    @Injectable()
    class Elsewhere {
      @OnlyLeader('nightly', { backend: 'second' })
      async run(): Promise<void> {}
    }
    const backends = { backends: { first: memory() } };
    await expect(start([Elsewhere], backends)).rejects.toThrow(
      new LockConfigError(
        '@OnlyLeader of Elsewhere.run: Option "backend" is "second"; give a name of the module\'s "backends" ("first")',
      ),
    );
    await using started = await start([Elsewhere], { backends: { second: memory() } });
    expect(started.own.candidacy('nightly')).toBeDefined();
  });

  it('stand for no method that is overridden, unless the other calls it', async () => {
    @Injectable()
    class Plain extends Job {
      override async run(): Promise<string> {
        return 'plain';
      }
    }
    @Injectable()
    class Calling extends Job {
      override async run(): Promise<string | undefined> {
        return super.run();
      }
    }
    @Injectable()
    class Longer extends Job {
      @OnlyLeader('nightly', { lease: '30s' })
      override async run(): Promise<string | undefined> {
        return 'longer';
      }
    }
    @Injectable()
    class Longest extends Longer {
      @OnlyLeader('nightly', { lease: '60s' })
      override async run(): Promise<string | undefined> {
        return 'longest';
      }
    }
    const stands = async (provider: Type) => {
      await using started = await start([provider]);
      return started.own.candidacy('nightly') !== undefined;
    };
    expect([await stands(Plain), await stands(Calling), await stands(Longest)]).toEqual([false, true, true]);
  });
});

/** Declares a route handler with this decorator, whose parameter has that one. */
function declare(decorator: unknown, parameter: ParameterDecorator): void {
  class Orders {
    async order(_response: unknown): Promise<void> {}
  }
  const method = Object.getOwnPropertyDescriptor(Orders.prototype, 'order') as PropertyDescriptor;
  parameter(Orders.prototype, 'order', 0);
  (decorator as MethodDecorator)(Orders.prototype, 'order', method);
}

const hour = { limit: 1, per: '1h' } as const;

describe.each<[name: string, decorator: unknown, call: string, error: new (message: string) => Error]>([
  ['Idempotent', Idempotent('order'), 'a repeat', PrimitiveConfigError],
  ['Cached', Cached('order'), 'a hit', CacheConfigError],
  ['RateLimit', RateLimit('order', { ...hour, onLimit: 'skip' }), 'a skipped call', PrimitiveConfigError],
  ['Semaphore', Semaphore('order', { permits: 1, onBusy: 'skip' }), 'a skipped call', PrimitiveConfigError],
  ['DistributedLock', DistributedLock('order', { onBusy: 'skip' }), 'a skipped call', LockConfigError],
  ['OnlyLeader', OnlyLeader('order'), 'a skipped call', PrimitiveConfigError],
  ['ScheduledLock', ScheduledLock('order', { atMostFor: '1m', atLeastFor: 0 }), 'a skipped call', PrimitiveConfigError],
])('@%s', (name, decorator, call, ConfigError) => {
  it('is refused on a handler that answers itself, whose request would not be answered', () => {
    const error = new ConfigError(
      `@${name} stands on Orders.order, which answers by @Res() or @Next(), so that ${call} would never be answered; ` +
        'return the body, and set headers by @Res({ passthrough: true })',
    );
    expect(() => declare(decorator, Res())).toThrow(error);
    expect(() => declare(decorator, Next())).toThrow(error);
  });

  it('stands on a handler whose body Nest sends', () => {
    expect(() => declare(decorator, Res({ passthrough: true }))).not.toThrow();
    expect(() => declare(decorator, Req())).not.toThrow();
  });
});

it.each<[name: string, decorator: unknown, consequence: string]>([
  ['CachePut', CachePut('order', { value: () => 1 }), 'there is no result to store'],
  ['CacheEvict', CacheEvict('order'), 'the client has its answer before the values are evicted'],
])('@%s is refused on a handler that answers itself, whose result it needs', (name, decorator, consequence) => {
  const error = new CacheConfigError(
    `@${name} stands on Orders.order, which answers by @Res() or @Next(), so that ${consequence}; return the body, ` +
      'and set headers by @Res({ passthrough: true })',
  );
  expect(() => declare(decorator, Res())).toThrow(error);
  expect(() => declare(decorator, Next())).toThrow(error);
  expect(() => declare(decorator, Res({ passthrough: true }))).not.toThrow();
});

it.each<[name: string, decorator: unknown]>([
  ['RateLimit', RateLimit('order', hour)],
  ['Semaphore', Semaphore('order', { permits: 1, onBusy: () => undefined })],
  ['DistributedLock', DistributedLock('order')],
  ['OnlyLeader', OnlyLeader('order', { elsewhere: 'throw' })],
])('@%s stands on a handler that answers itself where it skips no call', (_name, decorator) => {
  expect(() => declare(decorator, Res())).not.toThrow();
});
