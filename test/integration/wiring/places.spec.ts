// One test per place that a decorated method can stand in: how the instance came about, and who calls it.
import 'reflect-metadata';
import { jest } from '@jest/globals';
import {
  Controller,
  type DynamicModule,
  Get,
  type INestApplication,
  Inject,
  Injectable,
  Module,
  type OnModuleInit,
  Param,
  type Provider,
  Scope,
} from '@nestjs/common';
import { ContextIdFactory, type ContextIdStrategy, LazyModuleLoader, ModuleRef, NestFactory } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import {
  Cached,
  CacheNotWiredError,
  DistributedLock,
  LockConfigError,
  LockNotWiredError,
  LockService,
  memory,
  RedisLockModule,
} from 'nest-redis-lock';
import { RedisLockTestingModule, testServices, wire } from 'nest-redis-lock/testing';
import { firstValueFrom, Observable, of } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';

/** Answers the names that are held around its body, which must be those of the application that it belongs to. */
@Injectable()
class Worker {
  locks: LockService | undefined;

  @DistributedLock('work:<0>', { wait: 0 })
  async work(_id: string): Promise<readonly string[]> {
    return this.locks?.current()?.keys ?? [];
  }
}

@Injectable()
class InjectedWorker extends Worker {
  constructor(@Inject(LockService) locks: LockService) {
    super();
    this.locks = locks;
  }
}

interface Boot extends AsyncDisposable {
  readonly app: INestApplication;
  readonly locks: LockService;
  readonly logger: RecordingLogger;
}

async function boot(providers: Provider[], imports: DynamicModule[] = [], controllers: never[] = []): Promise<Boot> {
  const logger = new RecordingLogger();
  const module = await Test.createTestingModule({
    imports: [RedisLockTestingModule, ...imports],
    providers,
    controllers,
  }).compile();
  const app = module.createNestApplication({ logger });
  await app.init();
  return { app, locks: app.get(LockService), logger, [Symbol.asyncDispose]: () => app.close() };
}

/** The method ran inside the lock, of this application, and gave it back; and a busy lock keeps it out. */
async function expectLocked(worker: Worker, locks: LockService, id: string): Promise<void> {
  worker.locks = locks;
  expect(await worker.work(id)).toEqual([`work:${id}`]);
  const held = await locks.acquire(`work:${id}`, { wait: 0 });
  await expect(worker.work(id)).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
  await held.release();
}

describe('a class that Nest constructs', () => {
  it.each([
    ['singleton', Scope.DEFAULT],
    ['request-scoped', Scope.REQUEST],
    ['transient', Scope.TRANSIENT],
  ])('is locked when it is %s', async (_name, scope) => {
    await using booted = await boot([{ provide: Worker, useClass: InjectedWorker, scope }]);
    const worker = await booted.app.resolve(Worker);
    expect(worker).toBeInstanceOf(InjectedWorker);
    await expectLocked(worker, booted.locks, 'scoped');
  });

  it('is locked when it is durable', async () => {
    const tenants = new Map(['blue', 'green'].map((tenant) => [tenant, ContextIdFactory.create()]));
    const strategy: ContextIdStrategy<{ tenant: string }> = {
      attach: (contextId, { tenant }) => ({
        resolve: ({ isTreeDurable }) => (isTreeDurable ? tenants.get(tenant)! : contextId),
        payload: { tenant },
      }),
    };
    @Injectable({ scope: Scope.REQUEST, durable: true })
    class TenantWorker extends InjectedWorker {}
    await using booted = await boot([TenantWorker]);
    ContextIdFactory.apply(strategy as ContextIdStrategy);
    try {
      const workers = await Promise.all(
        ['blue', 'green', 'blue'].map((tenant) =>
          booted.app.resolve(TenantWorker, ContextIdFactory.getByRequest({ tenant })),
        ),
      );
      expect(new Set(workers).size).toBeGreaterThan(1);
      for (const worker of workers) await expectLocked(worker, booted.locks, 'tenant');
    } finally {
      ContextIdFactory.apply({ attach: (contextId) => () => contextId });
    }
  });

  it('is locked as a request-scoped controller, with the arguments that pipes have made', async () => {
    @Controller({ path: 'work', scope: Scope.REQUEST })
    class RequestController {
      constructor(@Inject(LockService) readonly locks: LockService) {}

      @Get(':id')
      @DistributedLock('work:<0>', { wait: 0 })
      async work(@Param('id', { transform: (id: string) => id.toUpperCase() }) id: string): Promise<string> {
        return `${id} ${String(this.locks.current()?.keys)}`;
      }
    }
    await using booted = await boot([], [], [RequestController as never]);
    await booted.app.listen(0);
    const url = `${await booted.app.getUrl()}/work/a`;
    expect(await (await fetch(url)).text()).toBe('A work:A');
    const held = await booted.locks.acquire('work:A');
    expect((await fetch(url)).status).toBe(423);
    await held.release();
  });

  it('is locked when another provider calls it from onModuleInit', async () => {
    @Injectable()
    class Starter implements OnModuleInit {
      held: readonly string[] = [];

      constructor(@Inject(InjectedWorker) readonly worker: Worker) {}

      async onModuleInit(): Promise<void> {
        this.held = await this.worker.work('boot');
      }
    }
    await using booted = await boot([Starter, InjectedWorker]);
    expect(booted.app.get(Starter).held).toEqual(['work:boot']);
  });

  it('is locked without init()', async () => {
    const module = await Test.createTestingModule({
      imports: [RedisLockTestingModule],
      providers: [InjectedWorker],
    }).compile();
    await expectLocked(module.get(InjectedWorker), module.get(LockService), 'compiled');
    await module.close();
  });

  it('is locked in a lazily loaded module, and from moduleRef.create()', async () => {
    @Module({ providers: [InjectedWorker] })
    class LazyModule {}
    await using booted = await boot([]);
    const lazy = await booted.app.get(LazyModuleLoader).load(() => LazyModule);
    await expectLocked(lazy.get(InjectedWorker), booted.locks, 'lazy');
    await expectLocked(await booted.app.get(ModuleRef).create(InjectedWorker), booted.locks, 'created');
  });

  it('is locked beside automatic mocks, and runs on a LockService of the test', async () => {
    class Mailer {}
    @Injectable()
    class Sender extends InjectedWorker {
      constructor(
        @Inject(LockService) locks: LockService,
        @Inject(Mailer) readonly mailer: unknown,
      ) {
        super(locks);
      }
    }
    const mocked = await Test.createTestingModule({ imports: [RedisLockTestingModule], providers: [Sender] })
      .useMocker(() => ({ mocked: true }))
      .compile();
    expect(mocked.get(Sender).mailer).toEqual({ mocked: true });
    await expectLocked(mocked.get(Sender), mocked.get(LockService), 'mocked');
    await mocked.close();

    const fake = {
      withLock: async (_key: string, _options: unknown, body: () => Promise<unknown>) => body(),
      current: () => ({ keys: ['fake'] }),
    };
    const faked = await Test.createTestingModule({
      providers: [InjectedWorker, { provide: LockService, useValue: fake }],
    }).compile();
    expect(await faked.get(InjectedWorker).work('1')).toEqual(['fake']);
  });

  it('uses the locks of its own application', async () => {
    await using first = await boot([InjectedWorker]);
    await using second = await boot([InjectedWorker]);
    const held = await first.locks.acquire('work:both');
    expect(await second.app.get(InjectedWorker).work('both')).toEqual(['work:both']);
    await expect(first.app.get(InjectedWorker).work('both')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await held.release();
  });
});

describe('an instance of a factory or a value', () => {
  it('is adopted when the application initialises, before other hooks run', async () => {
    const value = new Worker();
    @Injectable()
    class Starter implements OnModuleInit {
      held: readonly string[] | undefined;

      constructor(@Inject('value') readonly worker: Worker) {}

      async onModuleInit(): Promise<void> {
        this.held = await this.worker.work('boot');
      }
    }
    await using booted = await boot([
      Starter,
      { provide: 'value', useValue: value },
      { provide: 'factory', useFactory: () => new Worker() },
      { provide: 'async', useFactory: async () => Promise.resolve(new Worker()) },
      { provide: 'alias', useExisting: 'factory' },
      { provide: 'nothing', useValue: null },
    ]);
    expect(booted.app.get(Starter).held).toEqual([]);
    for (const token of ['value', 'factory', 'async', 'alias']) {
      await expectLocked(booted.app.get<Worker>(token), booted.locks, token);
    }
    expect(Object.keys(value)).toEqual(['locks']);
    expect(booted.logger.lines).toEqual([]);
  });

  it('is adopted by every application after the one before has ended, and left to the first while both run', async () => {
    const value = new Worker();
    const providers = [{ provide: 'value', useValue: value }];
    const before = await boot(providers);
    await expectLocked(value, before.locks, 'shared');
    {
      await using beside = await boot(providers);
      expect(
        beside.logger.matching(/provider value \(Worker\) has the LockService of another application/),
      ).toHaveLength(1);
      await expectLocked(value, before.locks, 'shared');
    }
    await before[Symbol.asyncDispose]();
    await using after = await boot(providers);
    await expectLocked(value, after.locks, 'shared');
    expect(after.logger.lines).toEqual([]);
  });

  it('uses the locks that its module sees', async () => {
    @Module({})
    class Shop {}
    @Module({})
    class Warehouse {}
    const part = (module: typeof Shop, prefix: string): DynamicModule => ({
      module,
      imports: [RedisLockModule.forRoot({ isGlobal: false, backend: memory(), prefix })],
      providers: [
        {
          provide: prefix,
          inject: [LockService],
          useFactory: (locks: LockService) => Object.assign(new Worker(), { locks }),
        },
      ],
      exports: [prefix],
    });
    @Module({
      imports: [RedisLockTestingModule, part(Shop, 'shop'), part(Warehouse, 'warehouse')],
      providers: [{ provide: 'another name for it', useExisting: 'shop' }],
    })
    class Root {}
    const logger = new RecordingLogger();
    const app = await NestFactory.createApplicationContext(Root, { logger });
    const [shop, warehouse] = ['shop', 'warehouse'].map((token) => app.get<Worker>(token, { strict: false }));
    const held = await shop!.locks!.acquire('work:1');
    expect(await warehouse!.work('1')).toEqual(['work:1']);
    await expect(shop!.work('1')).rejects.toMatchObject({ code: 'LOCK_TIMEOUT' });
    await held.release();
    expect(logger.matching(/RedisLockModule is imported with options 3 times/)).toHaveLength(1);
    expect(logger.lines).toHaveLength(1);
    await app.close();
  });

  it('does not start where its module sees no locks, like a class', async () => {
    @Module({ imports: [RedisLockModule.forRoot({ isGlobal: false, backend: memory() })] })
    class Locked {}
    @Module({ imports: [Locked], providers: [{ provide: 'value', useValue: new Worker() }] })
    class Root {}
    const logger = new RecordingLogger();
    await expect(NestFactory.createApplicationContext(Root, { logger, abortOnError: false })).rejects.toThrow(
      /LockService/,
    );
  });

  it('is refused when it is frozen', async () => {
    const starting = boot([{ provide: 'value', useValue: Object.freeze(new Worker()) }]);
    await expect(starting).rejects.toBeInstanceOf(LockConfigError);
    await expect(starting).rejects.toThrow(/provider value \(Worker\).*frozen/);
  });

  it('does not run where it cannot be adopted: request-scoped, inside of another object, or made with new', async () => {
    await using booted = await boot([
      { provide: 'request', scope: Scope.REQUEST, useFactory: () => new Worker() },
      { provide: 'list', useValue: [new Worker()] },
    ]);
    const workers = [
      await booted.app.resolve<Worker>('request'),
      booted.app.get<Worker[]>('list')[0] as Worker,
      new Worker(),
    ];
    for (const worker of workers) {
      await expect(worker.work('1')).rejects.toBeInstanceOf(LockNotWiredError);
      await expect(worker.work('1')).rejects.toThrow(/Worker\.work did not run: its instance has no LockService/);
    }
  });
});

describe('a subclass', () => {
  @Injectable()
  class Inheriting extends InjectedWorker {}

  @Injectable()
  class Extending extends InjectedWorker {
    override async work(id: string): Promise<readonly string[]> {
      const before = this.locks?.current();
      expect(before).toBeUndefined();
      return super.work(id);
    }
  }

  @Injectable()
  class Replacing extends InjectedWorker {
    override async work(_id: string): Promise<readonly string[]> {
      return this.locks?.current()?.keys ?? [];
    }
  }

  @Injectable()
  class Relocking extends InjectedWorker {
    @DistributedLock('other:<0>')
    override async work(id: string): Promise<readonly string[]> {
      return [...(this.locks?.current()?.keys ?? []), ...(await super.work(id))];
    }
  }

  it('inherits the lock, keeps it with super, replaces it without, and adds its own', async () => {
    await using booted = await boot([Inheriting, Extending, Replacing, Relocking]);
    await expectLocked(booted.app.get(Inheriting), booted.locks, 'inherited');
    await expectLocked(booted.app.get(Extending), booted.locks, 'super');
    expect(await booted.app.get(Replacing).work('1')).toEqual([]);
    expect(await booted.app.get(Relocking).work('1')).toEqual(['other:1', 'work:1']);
    expect(await booted.locks.isLocked('other:1')).toBe(false);
  });
});

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
