import 'reflect-metadata';
import { Inject, Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import fc from 'fast-check';
import {
  Cached,
  CacheEvict,
  CacheKeyError,
  CachePut,
  DistributedLock,
  LockConfigError,
  LockKeyError,
  LockService,
  LockUpgradeError,
  memory,
} from 'nest-redis-lock';
import { RedisLockTestingModule, testServices, wire } from 'nest-redis-lock/testing';
import { LockKeys } from '../../../lib/backends/redis/locks/redis-lock-keys.js';
import { compileKeyTemplate } from '../../../lib/decorators/key-template.js';
import { cacheApp, type CacheApp } from '../../support/cache-app.js';
import { Gate } from '../../support/gate.js';
import { startLockApp } from '../../support/lock-app.js';

function names(template: string, ...args: unknown[]): readonly string[] {
  return compileKeyTemplate(template, LockKeyError)({ instance: {}, args });
}

const uuid = '550e8400-e29b-41d4-a716-446655440000';
const text = fc
  .array(fc.constantFrom('-', '_', ':', '%', '%2D', '2D', '/', ' ', '{', '}', 'a', '7', 'é', '😀'), {
    minLength: 1,
    maxLength: 5,
  })
  .map((parts) => parts.join(''));

describe('the name that a template makes', () => {
  it.each([
    ['order-<0>', [uuid], `order-${uuid}`],
    ['order_<0>_items', ['a_b-c'], 'order_a_b-c_items'],
    ['user/<0>', ['a/b@c.de'], 'user/a/b@c.de'],
    ['order:<0>:<1>', [uuid, 'a-b_c'], `order:${uuid}:a-b_c`],
    ['order-<0>:<1>-x', ['a-b', 'c-d'], 'order-a-b:c-d-x'],
    ['order:<0>', ['é €😀'], 'order:é €😀'],
  ])('of %s and %j is %s, as one would write it by hand', (template, args, name) => {
    expect(names(template, ...args)).toEqual([name]);
  });

  it.each([
    ['order:<0>', ['a:b%{c}'], 'order:a%3Ab%25%7Bc%7D'],
    ['price-<0>-<1>', ['a-b', 'c_d'], 'price-a%2Db-c_d'],
    ['<0> -- <1>:<2>', ['a - b', 'c d', 'e f'], 'a%20-%20b -- c%20d:e f'],
    ['<0>€<1>', ['1€', '2'], '1%E2%82%AC€2'],
  ])('of %s and %j is %s: what separates is escaped', (template, args, name) => {
    expect(names(template, ...args)).toEqual([name]);
  });

  it('is never that of other arguments', () => {
    const between = fc.constantFrom(
      ':',
      '-',
      '--',
      ' - ',
      '_',
      '/',
      'x-',
      '-x',
      '%-',
      '-%',
      'a:b',
      ':-',
      '-:',
      '%3A-',
      '😀',
    );
    const around = fc.constantFrom('', 'a', '-', ':', 'a-', '%', 'é-');
    const count = fc.integer({ min: 1, max: 4 });
    fc.assert(
      fc.property(
        count.chain((n) =>
          fc.record({
            head: around,
            tail: around,
            literals: fc.array(between, { minLength: n - 1, maxLength: n - 1 }),
            one: fc.array(text, { minLength: n, maxLength: n }),
            other: fc.array(text, { minLength: n, maxLength: n }),
          }),
        ),
        ({ head, tail, literals, one, other }) => {
          fc.pre(JSON.stringify(one) !== JSON.stringify(other));
          const template = head + one.map((_, index) => `<${index}>${literals[index] ?? ''}`).join('') + tail;
          expect(names(template, ...one)).not.toEqual(names(template, ...other));
        },
      ),
      { numRuns: 20_000 },
    );
  });

  it('is never that of a value moved over a separator', () => {
    const literal = fc.constantFrom('-', '--', ':', '_', ' - ', '%-', 'x-', '/');
    fc.assert(
      fc.property(literal, text, text, text, (between, a, b, c) => {
        const template = `<0>${between}<1>`;
        expect(names(template, `${a}${between}${b}`, c)).not.toEqual(names(template, a, `${b}${between}${c}`));
      }),
      { numRuns: 5_000 },
    );
  });

  it('differs between templates of other numbers of parts', () => {
    fc.assert(
      fc.property(text, text, text, (a, b, c) => {
        expect(names('<0>:<1>', a, b)).not.toEqual(names('<0>:<1>:<2>', a, b, c));
      }),
    );
  });
});

it.each([undefined, null, 5, true, Symbol('key')])('%p is no template', (given) => {
  const key = given as unknown as string;
  const refusal = `Key template is ${String(given)}; give a name or a template`;
  expect(() => DistributedLock(key)).toThrow(new LockKeyError(refusal));
  expect(() => Cached(key)).toThrow(CacheKeyError);
  expect(() => CacheEvict(key)).toThrow(CacheKeyError);
});

describe('a template in the manner of another library', () => {
  it.each([
    ['user:{0}', '{0}'],
    ['{0}', '{0}'],
    ['{0}:cart', '{0}'],
    ['{id}', '{id}'],
    ['user:{id}', '{id}'],
    ['user:{id}:<0>', '{id}'],
    ['user:{{id}}', '{{id}'],
    ['user:{user.id}', '{user.id}'],
    ['{shop}:{0}', '{0}'],
    ['me:${userId}', '${userId}'],
    ['${userId}', '${userId}'],
    ['#id', '#id'],
    ['user:#id', '#id'],
    ['#user.id', '#user.id'],
    ["'user:' + #id", '#id'],
    ['#{id}', '#{id}'],
    ['user:$id', '$id'],
    ['user:$1', '$1'],
  ])('%s is refused, naming %s', (template, found) => {
    const decorations: [() => unknown, typeof LockKeyError | typeof CacheKeyError][] = [
      [() => DistributedLock(template), LockKeyError],
      [() => DistributedLock(['fine:<0>', template]), LockKeyError],
      [() => Cached(template), CacheKeyError],
      [() => Cached('fine', { tags: [template] }), CacheKeyError],
      [() => CachePut(template), CacheKeyError],
      [() => CacheEvict(template), CacheKeyError],
      [() => CacheEvict('fine', { prefix: template }), CacheKeyError],
    ];
    for (const [decorate, KeyError] of decorations) {
      expect(decorate).toThrow(KeyError);
      expect(decorate).toThrow(`"${template}": "${found}" would be text`);
      expect(decorate).toThrow(/write <\d+>/);
    }
  });

  it('is refused with the placeholder to write instead', () => {
    expect(() => DistributedLock('user:{1}')).toThrow('write <1>;');
    expect(() => DistributedLock('user:{id}')).toThrow('write <0> for the first argument, <0.id> for');
  });

  it.each([
    '{shop}:a',
    '{shop}<0>',
    '{<0>}:cart',
    'cart:{<0>}',
    'c#',
    'room#general',
    '#<0>',
    'cost$',
    'a:id',
    '/order/:id',
    '$',
    '#',
    '*',
  ])('%s is none', (template) => {
    expect(names(template, 'x')).toHaveLength(1);
  });
});

describe('<#n>', () => {
  it('makes a key part of an object, whatever the order of its properties', () => {
    const [one] = names('list:<#0>', { page: 1, filter: { color: 'red', size: [1, 2] } });
    const [same] = names('list:<#0>', { filter: { size: [1, 2], color: 'red' }, page: 1 });
    const [other] = names('list:<#0>', { filter: { size: [2, 1], color: 'red' }, page: 1 });
    expect(one).toMatch(/^list:[0-9a-f]{64}$/);
    expect(same).toBe(one);
    expect(other).not.toBe(one);
  });

  it('takes a path, and walks a list', () => {
    const query = { filter: { a: 1 }, items: [{ a: 1 }, { a: 2 }] };
    const [whole] = names('<#0>', query.filter);
    expect(names('<#0.filter>', query)).toEqual([whole]);
    expect(names('<#0.items.*>', query)).toEqual([whole, names('<#0>', { a: 2 })[0]]);
  });

  it('refuses what cannot be hashed, with the error of the decorator', () => {
    const cycle: { self?: object } = {};
    cycle.self = cycle;
    expect(() => names('list:<#0>', undefined)).toThrow(LockKeyError);
    expect(() => names('list:<#0>', { f: () => 1 })).toThrow(/"list:<#0>": <#0>: What is at \.f is a function/);
    expect(() => names('list:<#0>', cycle)).toThrow(/\.self is a cycle/);
  });

  it('is named where an object stands without it', () => {
    expect(() => names('list:<0.filter>', { filter: {} })).toThrow(/is an object; .*<#0\.filter>/);
  });
});

describe('<n?>', () => {
  it.each([
    ['page:<0?>', [undefined], ['page:%']],
    ['page:<0?>', [null], ['page:%']],
    ['page:<0?>', [], ['page:%']],
    ['page:<0?>', ['%'], ['page:%25']],
    ['page:<0?>', ['de'], ['page:de']],
    ['<0?>', [undefined], ['%']],
    ['<0.lang?>:<1?>', [undefined, 0], ['%:0']],
    ['<0.lang?>-<1?>', [{ lang: 'a-b' }, undefined], ['a%2Db-%']],
    ['<0.a.b.c?>', [{ a: null }], ['%']],
    ['sku:<0.*.sku?>', [[{ sku: 'a' }, {}]], ['sku:a', 'sku:%']],
    ['sku:<0.items.*.sku?>', [{}], ['sku:%']],
    ['list:<#0?>', [undefined], ['list:%']],
    ['list:<#0?>', [{ a: 1 }], names('list:<#0>', { a: 1 })],
  ])('of %s and %j is a mark that no value makes, where it is absent', (template, args, made) => {
    expect(names(template, ...args)).toEqual(made);
  });

  it('never makes the name of other arguments', () => {
    const value = fc.option(text, { nil: undefined });
    fc.assert(
      fc.property(value, value, value, value, fc.constantFrom('-', ':', '%-', '2D-', '25:'), (a, b, c, d, between) => {
        fc.pre(a !== c || b !== d);
        const template = `x<0?>${between}<1?>`;
        expect(names(template, a, b)).not.toEqual(names(template, c, d));
      }),
      { numRuns: 10_000 },
    );
  });

  it('refuses an empty string, an object and NaN as before, and `?` elsewhere', () => {
    for (const value of ['', {}, NaN]) expect(() => names('page:<0?>', value)).toThrow(LockKeyError);
    expect(() => names('sku:<0.*?>', [])).toThrow(/an empty list/);
    for (const template of ['<0??>', '<?>', '<0?.lang>', '<this?>']) {
      expect(() => DistributedLock(template as never)).toThrow(LockKeyError);
    }
  });

  it('is named where a value is absent', () => {
    expect(() => names('page:<0>', undefined)).toThrow('<0> is undefined; it must be a string');
    expect(() => names('page:<0.lang>', {})).toThrow('(<0.lang?> makes a key part of an absent value)');
    expect(() => names('list:<#0>', undefined)).toThrow(/cannot be hashed/);
  });

  it('caches a call without the argument under a key of its own', async () => {
    class Pages {
      @Cached('page:<0?>')
      async page(lang?: string): Promise<string> {
        return lang ?? 'every language';
      }

      @CacheEvict('page:<0?>')
      async change(_lang?: string): Promise<void> {}
    }
    const services = testServices();
    const pages = wire(new Pages(), services);
    expect([await pages.page(), await pages.page('de'), await pages.page('%')]).toEqual(['every language', 'de', '%']);
    expect(await services.cache.get('page:%')).toBe('every language');
    await pages.change();
    expect([await services.cache.get('page:%'), await services.cache.get('page:de')]).toEqual([undefined, 'de']);
  });
});

describe('half a surrogate pair', () => {
  it.each(['\ud800', 'a\udfff', '\udc00\ud800'])('is refused in %j', async (half) => {
    expect(() => names('order:<0>', half)).toThrow(LockKeyError);
    expect(() => names('order:<0>', half)).toThrow(/half a surrogate pair/);
    expect(() => DistributedLock(`order:${half}`)).toThrow(LockKeyError);
    await using app = await startLockApp({ backend: memory() });
    const locks = app.app.get(LockService);
    await expect(locks.acquire(half)).rejects.toThrow(LockKeyError);
    await expect(locks.withLock(['fine', half], async () => {})).rejects.toThrow(/half a surrogate pair/);
    await expect(locks.inspect(half)).rejects.toThrow(LockKeyError);
  });
});

describe('names of locks at Redis', () => {
  it('are never the same key', () => {
    const name = fc
      .array(fc.constantFrom('}', '%', '7D', '25', 'a', '%7D', '%25'), { minLength: 1, maxLength: 6 })
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(name, name, (one, other) => {
        fc.pre(one !== other);
        const prefix = undefined;
        const keys = new LockKeys(prefix);
        expect(keys.lock(one)).not.toBe(keys.lock(other));
      }),
      { numRuns: 10_000 },
    );
  });

  it.each([
    ['}a', 'lock:{%7Da}'],
    ['%7Da', 'lock:{%257Da}'],
    ['%41', 'lock:{%41}'],
    ['a}b%7D', 'lock:{a}b%7D}'],
  ])('of %s is %s', (name, key) => {
    expect(new LockKeys(undefined).lock(name)).toBe(key);
  });
});

describe('a value cached by a template', () => {
  class Orders {
    loads = 0;

    @Cached('order-<0>')
    async find(id: string): Promise<string> {
      this.loads += 1;
      return `${id} ${this.loads}`;
    }
  }

  let app: CacheApp;
  let orders: Orders;

  beforeEach(async () => {
    app = await cacheApp({ providers: [Orders] });
    orders = app.app.get(Orders);
  });
  afterEach(() => app.close());

  it('is found under the key that one would write by hand', async () => {
    const first = await orders.find(uuid);
    expect(await app.cache.get(`order-${uuid}`)).toBe(first);
    await app.cache.invalidate(`order-${uuid}`);
    expect(await orders.find(uuid)).not.toBe(first);
  });

  it('is deleted by the prefix that one would write by hand', async () => {
    await orders.find(uuid);
    expect(await app.cache.deleteByPrefix('order-550e8400-')).toBe(1);
  });

  it('refuses half a surrogate pair as a key', async () => {
    await expect(app.cache.get('a\ud800')).rejects.toThrow(CacheKeyError);
    await expect(app.cache.set('\udc00', 1)).rejects.toThrow(CacheKeyError);
    await expect(app.cache.invalidate(['fine', '\ud800'])).rejects.toThrow(CacheKeyError);
    await expect(app.cache.set('fine', 1, { tags: ['\ud800'] })).rejects.toThrow();
    await expect(orders.find('\ud800')).rejects.toThrow(CacheKeyError);
  });
});

describe('a method that reads', () => {
  @Injectable()
  class Prices {
    readonly entered: Gate[] = [];
    gate = new Gate();

    @DistributedLock('prices:<0>', { mode: 'read' })
    async quote(_list: string): Promise<string> {
      return 'read';
    }

    @DistributedLock('prices:<0>', { mode: 'read' })
    async quoteSlowly(_list: string, entered: Gate): Promise<void> {
      entered.open();
      await this.gate.opened;
    }

    @DistributedLock('prices:<0>')
    async import(list: string): Promise<string> {
      return this.quote(list);
    }
  }

  @Injectable()
  class Shop {
    constructor(@Inject(Prices) private readonly prices: Prices) {}

    @DistributedLock('prices:<0>', { mode: 'read' })
    async importWhileReading(list: string): Promise<string> {
      return this.prices.import(list);
    }

    @DistributedLock('prices:<0>', { mode: 'read' })
    async quoteWhileReading(list: string): Promise<string> {
      return this.prices.quote(list);
    }
  }

  async function start() {
    const testing = Test.createTestingModule({
      imports: [RedisLockTestingModule.forRoot()],
      providers: [Prices, Shop],
    });
    const app = await testing.compile();
    await app.init();
    return { app, prices: app.get(Prices), shop: app.get(Shop), locks: app.get(LockService) };
  }

  it('lets decorated methods read together, and one write alone', async () => {
    const { app, prices, locks } = await start();
    const [one, two] = [new Gate(), new Gate()];
    const calls = [prices.quoteSlowly('today', one), prices.quoteSlowly('today', two)];
    await Promise.all([one.opened, two.opened]);
    const writing = prices.import('today');
    expect(await locks.tryAcquire('prices:today')).toBeNull();
    prices.gate.open();
    await Promise.all(calls);
    expect(await writing).toBe('read');
    expect(await locks.isLocked('prices:today')).toBe(false);
    await app.close();
  });

  it('lets a decorated method read inside of one that reads, and refuses one that writes', async () => {
    const { app, shop, locks } = await start();
    expect(await shop.quoteWhileReading('today')).toBe('read');
    const refused = shop.importWhileReading('today');
    await expect(refused).rejects.toBeInstanceOf(LockUpgradeError);
    await expect(refused).rejects.toMatchObject({ code: 'LOCK_UPGRADE', keys: ['prices:today'], statusCode: 500 });
    await expect(refused).rejects.toThrow(/from the beginning/);
    expect(await locks.isLocked('prices:today')).toBe(false);
    await app.close();
  });

  it('refuses to read by default: locks that say nothing are held alone', async () => {
    const options = { backend: memory(), defaults: { mode: 'read' } } as const;
    await expect(startLockApp(options)).rejects.toThrow(LockConfigError);
    await expect(startLockApp(options)).rejects.toThrow(/defaults\.mode/);
  });
});
