import 'reflect-metadata';
import { Injectable, type ModuleMetadata, type Provider, Scope } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  Cached,
  CacheEvict,
  CachePut,
  DistributedLock,
  Idempotent,
  memory,
  PrimitiveConfigError,
  RedisLockModule,
  ScheduledLock,
} from 'nest-redis-lock';
import { RecordingLogger } from '../../support/recording-logger.js';

/** What the log of an application warns of when it starts. */
async function warnings(
  metadata: ModuleMetadata,
  imports = [RedisLockModule.forRoot({ backend: memory() })],
): Promise<string[]> {
  const logger = new RecordingLogger();
  class Root {}
  const module = { module: Root, ...metadata, imports: [...imports, ...(metadata.imports ?? [])] };
  const app = await NestFactory.createApplicationContext(module, { logger, abortOnError: false });
  await app.close();
  return logger.lines.map(({ text }) => text);
}

const FREE = { atMostFor: '1m', atLeastFor: 0 } as const;

describe('instances of one class', () => {
  class Shop {
    constructor(readonly name: string) {}

    @Cached('limit:<0>')
    async limit(id: string): Promise<string> {
      return `${this.name} ${id}`;
    }

    @Cached('price:<this.name>:<0>')
    async price(id: string): Promise<string> {
      return `${this.name} ${id}`;
    }
  }

  class Payments {
    constructor(readonly name: string) {}

    @Idempotent('charge:<0>')
    async charge(_id: string): Promise<void> {}
  }

  class Jobs {
    constructor(readonly name: string) {}

    @ScheduledLock('nightly', FREE)
    async run(): Promise<void> {}
  }

  class Apart {
    constructor(readonly name: string) {}

    @Idempotent('charge:<this.name>:<0>')
    async charge(_id: string): Promise<void> {}

    @ScheduledLock('nightly:<this.name>', FREE)
    async run(): Promise<void> {}

    @Cached('limit:<this.name>:<0>')
    async limit(_id: string): Promise<string> {
      return this.name;
    }
  }

  const two = (type: new (name: string) => object, names: (string | undefined)[] = ['berlin', 'paris']): Provider[] =>
    names.map((name, index) => ({ provide: `${name} ${index}`, useFactory: () => new type(name as string) }));

  it('that share cached values are warned of', async () => {
    expect(await warnings({ providers: two(Shop) })).toEqual([
      'Shop.limit of 2 instances is cached under one key template, "limit:<0>", so each returns what the other has loaded: ' +
        'put what tells the instances apart into it, as in "limit:<0>:<this.name>", or give a key function if that is intended',
    ]);
    const one = new Shop('berlin');
    expect(await warnings({ providers: ['a', 'b'].map((provide) => ({ provide, useValue: one })) })).toEqual([]);
  });

  it('that share results or runs refuse the start', async () => {
    await expect(warnings({ providers: two(Payments) })).rejects.toBeInstanceOf(PrimitiveConfigError);
    await expect(warnings({ providers: two(Payments) })).rejects.toThrow(
      'Payments.charge of 2 instances is idempotent under one key template, "charge:<0>", so each repeats what the other has answered',
    );
    await expect(warnings({ providers: two(Jobs) })).rejects.toThrow(
      'Jobs.run of 2 instances is scheduled under one name, "nightly", so one does not run while the other does: put what ' +
        'tells the instances apart into it, as in "nightly:<this.name>"',
    );
  });

  it('that their keys tell apart do neither, but for equal values', async () => {
    expect(await warnings({ providers: two(Apart) })).toEqual([]);
    // They may get it later; without it, a call is refused.
    expect(await warnings({ providers: two(Apart, [undefined, undefined]) })).toEqual([]);
    await expect(warnings({ providers: two(Apart, ['paris', 'paris']) })).rejects.toThrow(
      'Apart.charge of 2 instances is idempotent under one key template, "charge:<this.name>:<0>"',
    );
  });

  it('are found where two modules provide a class, and where each consumer has its own', async () => {
    @Injectable()
    class Service extends Payments {
      constructor() {
        super('berlin');
      }
    }
    const inModules = [class One {}, class Two {}].map((module) => ({ module, providers: [Service] }));
    await expect(warnings({ imports: inModules })).rejects.toThrow('Service.charge of 2 instances is idempotent');
    const transient = { provide: Service, useClass: Service, scope: Scope.TRANSIENT };
    const consumers = ['a', 'b'].map((provide) => ({ provide, inject: [Service], useFactory: (it: Service) => it }));
    await expect(warnings({ providers: [transient, ...consumers] })).rejects.toThrow('of 2 instances is idempotent');
  });

  it('that requests have are warned of where nothing of them is in the key', async () => {
    @Injectable({ scope: Scope.REQUEST })
    class Tenant {
      name = 'acme';

      @Cached('limit:<0>')
      async limit(id: string): Promise<string> {
        return id;
      }

      @Cached('price:<this.name>:<0>')
      async price(id: string): Promise<string> {
        return id;
      }

      @Idempotent('pay:<0>')
      async pay(_id: string): Promise<void> {}
    }
    const lines = await warnings({ providers: [Tenant] });
    expect(lines).toHaveLength(2);
    expect(lines[0]).toMatch(/^Tenant\.limit of several instances is cached under one key template, "limit:<0>"/);
    expect(lines[1]).toMatch(/^Tenant\.pay of several instances is idempotent under one key template, "pay:<0>"/);
  });

  it('of classes that inherit a method need their class in the key', async () => {
    class Gateway {
      @Idempotent('pay:<0>')
      async pay(_id: string): Promise<void> {}
    }
    @Injectable()
    class Cards extends Gateway {}
    @Injectable()
    class Wallets extends Gateway {}
    await expect(warnings({ providers: [Cards, Wallets] })).rejects.toThrow(
      'Cards.pay and Wallets.pay are idempotent under one key template, "pay:<0>"',
    );
    await expect(warnings({ providers: [Gateway, Wallets] })).rejects.toThrow('Gateway.pay and Wallets.pay are');
    expect(await warnings({ providers: [Wallets] })).toEqual([]);
    @Injectable()
    class Checked extends Gateway {
      @DistributedLock('checked:<0>')
      override async pay(id: string): Promise<void> {
        return super.pay(id);
      }
    }
    await expect(warnings({ providers: [Checked, Wallets] })).rejects.toThrow('Checked.pay and Wallets.pay are');
    @Injectable()
    class Again extends Gateway {
      @Idempotent('pay:<0>')
      override async pay(id: string): Promise<void> {
        return super.pay(id);
      }
    }
    expect(await warnings({ providers: [Again] })).toEqual([]);
    await expect(warnings({ providers: [Again, Wallets] })).rejects.toThrow('Again.pay and Wallets.pay are');
    @Injectable()
    class Other extends Gateway {
      override async pay(_id: string): Promise<void> {}
    }
    expect(await warnings({ providers: [Other, Wallets] })).toEqual([]);
    class Named {
      @Idempotent('pay:<this.constructor.name>:<0>')
      async pay(_id: string): Promise<void> {}

      @Cached('row:<0>:<this.constructor.name>')
      async find(id: string): Promise<string> {
        return id;
      }
    }
    class One extends Named {}
    class Two extends Named {}
    expect(await warnings({ providers: [Named, One, Two] })).toEqual([]);
    const namesakes = [class Same extends Named {}, class Same extends Named {}];
    await expect(warnings({ providers: namesakes })).rejects.toThrow('Same.pay of 2 instances is idempotent');
  });

  it('of which a backend or another import of the module keeps the keys share nothing', async () => {
    class North extends Payments {}
    class Both {
      @Idempotent('charge:<0>', { backend: 'south' })
      async charge(_id: string): Promise<void> {}
    }
    const backends = { south: memory() };
    expect(
      await warnings({ providers: [Both, one(North)] }, [RedisLockModule.forRoot({ backend: memory(), backends })]),
    ).toEqual([]);
    const module = (prefix: string, type: new (name: string) => object) => ({
      module: class {},
      imports: [RedisLockModule.forRoot({ backend: memory(), prefix, isGlobal: false })],
      providers: [one(type)],
    });
    const several = [module('a', Payments), module('b', Payments)];
    expect(await warnings({ imports: several }, [])).toEqual([
      expect.stringMatching('RedisLockModule is imported with options 2 times'),
    ]);
  });

  const one = (type: new (name: string) => object): Provider => ({ provide: type, useFactory: () => new type('one') });
});

describe('jobs of one name', () => {
  @Injectable()
  class Invoices {
    @ScheduledLock('nightly', FREE)
    async send(): Promise<void> {}
  }
  @Injectable()
  class Reminders {
    @ScheduledLock('nightly', FREE)
    async send(): Promise<void> {}
  }

  it('refuse the start', async () => {
    await expect(warnings({ providers: [Invoices, Reminders] })).rejects.toThrow(
      'Invoices.send and Reminders.send are scheduled under one name, "nightly", so one does not run while the other ' +
        'does: give each a name of its own',
    );
    expect(await warnings({ providers: [Invoices] })).toEqual([]);
  });
});

describe('templates that differ and make one key', () => {
  function withDecorator(decorate: (template: string) => MethodDecorator, templates: string[]): Provider {
    class Shop {}
    for (const [index, template] of templates.entries()) {
      const method = { value: async (..._args: unknown[]) => {}, configurable: true, writable: true };
      Object.defineProperty(Shop.prototype, `m${index}`, method);
      const descriptor = Object.getOwnPropertyDescriptor(Shop.prototype, `m${index}`) as PropertyDescriptor;
      decorate(template)(Shop.prototype, `m${index}`, descriptor);
      Object.defineProperty(Shop.prototype, `m${index}`, descriptor);
    }
    return Injectable()(Shop) ?? Shop;
  }
  const cached = (template: string) => Cached(template) as MethodDecorator;
  const idempotent = (template: string) => Idempotent(template) as MethodDecorator;

  it.each([
    [['user:me', 'user:<0>'], 'user:me'],
    [['price-<0>', 'price-<0>-<1>'], 'price-a-a'],
    [['user:<0>:posts', 'user:<0>:<1>'], 'user:a:posts'],
    [['<0>:cart', 'user:<0>'], 'user:cart'],
    [['a-<0>-z', 'a-<0>'], 'a-a-z'],
    [['list:<#0>', 'list:<0>'], `list:${'a'.repeat(64)}`],
    [['{shop}:<0>', '{shop}:all'], '{shop}:all'],
    [['item:<0>', 'item:<1>'], 'item:a'],
  ])('%j warn where they cache, and refuse the start where they repeat', async (templates, key) => {
    const [one, other] = templates;
    const lines = await warnings({ providers: [withDecorator(cached, templates)] });
    expect(lines).toContain(
      `Shop.m0 ("${one}") and Shop.m1 ("${other}") can make the same key, such as "${key}", so each returns what the other ` +
        'has loaded: begin one of the templates with other words',
    );
    await expect(warnings({ providers: [withDecorator(idempotent, templates)] })).rejects.toThrow(
      `Shop.m0 ("${one}") and Shop.m1 ("${other}") can make the same key, such as "${key}", so each repeats`,
    );
  });

  it.each([
    [['user:<0>', 'user:<0>:<1>']],
    [['user:me:<0>', 'user:you:<0>']],
    [['price-<0>-<1>', 'price-<0>-<1>-<2>']],
    [['list:<#0>', 'list:all']],
    [['user-<0>', 'order-<0>']],
    [['<0>:cart', '<0>:list']],
  ])('%j can not', async (templates) => {
    expect(await warnings({ providers: [withDecorator(cached, templates)] })).toEqual([]);
    expect(await warnings({ providers: [withDecorator(idempotent, templates)] })).toEqual([]);
  });

  it('are meant where one method puts what another one caches, unless their shapes differ', async () => {
    class Products {
      @Cached('product:<0>')
      async find(id: string): Promise<string> {
        return id;
      }

      @CachePut('product:<0.id>')
      async save(product: { id: string }): Promise<object> {
        return product;
      }

      @CachePut('product:<0.id>')
      async rename(product: { id: string }): Promise<object> {
        return product;
      }

      @CacheEvict('product:<0>')
      async remove(_id: string): Promise<void> {}
    }
    expect(await warnings({ providers: [Products] })).toEqual([]);
    class Others {
      @CachePut('product:all')
      async all(): Promise<string[]> {
        return [];
      }
    }
    const lines = await warnings({ providers: [Products, Others] });
    expect(lines).toContainEqual(expect.stringContaining('can make the same key, such as "product:all"'));
  });
});
