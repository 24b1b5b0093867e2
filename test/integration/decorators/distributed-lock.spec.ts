import 'reflect-metadata';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { Controller, Get, Inject, Injectable, Param, SetMetadata } from '@nestjs/common';
import { METHOD_METADATA, PATH_METADATA } from '@nestjs/common/constants.js';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  type BusyCall,
  DistributedLock,
  LockConfigError,
  LockKeyError,
  LockLostError,
  LockNotWiredError,
  LockService,
  LockTimeoutError,
} from 'nest-redis-lock';
import { RedisLockTestingModule } from 'nest-redis-lock/testing';
import { concat, firstValueFrom, lastValueFrom, NEVER, Observable, of, throwError, toArray } from 'rxjs';
import { eventually } from '../../support/eventually.js';
import { Gate } from '../../support/gate.js';
import { RecordingLogger } from '../../support/recording-logger.js';

interface Order {
  id?: unknown;
  customer?: { id: unknown };
  items?: { sku: unknown }[];
}

let calls: string[] = [];
const busy: BusyCall[] = [];

const Tag = (value: string) => SetMetadata('tag', value);

@Injectable()
class Orders {
  /** A name that the injection must not take. */
  lockService = 'mine';

  constructor(@Inject(LockService) readonly locks: LockService) {}

  private async report(name: string): Promise<readonly string[]> {
    calls.push(name);
    return this.locks.current()?.keys ?? [];
  }

  @DistributedLock('order:<0>')
  async byArgument(_id: unknown): Promise<readonly string[]> {
    return this.report('byArgument');
  }

  @DistributedLock('order:<0.customer.id>:<1>')
  async byPath(_order: Order | null | undefined, _shop?: unknown): Promise<readonly string[]> {
    return this.report('byPath');
  }

  @DistributedLock(['account:<0.from>', 'account:<0.to>'])
  async transfer(_move: { from: string; to: string }): Promise<readonly string[]> {
    return this.report('transfer');
  }

  @DistributedLock('sku:<0.items.*.sku>')
  async each(_order: Order): Promise<readonly string[]> {
    return this.report('each');
  }

  @DistributedLock((order: Order, shop: string) => `${shop}/${String(order.id)}`)
  async byFunction(_order: Order, _shop: string): Promise<readonly string[]> {
    return this.report('byFunction');
  }

  @DistributedLock((ids: string[]) => ids)
  async byFunctionOfSeveral(_ids: string[]): Promise<readonly string[]> {
    return this.report('byFunctionOfSeveral');
  }

  @DistributedLock('<0>-<1>')
  async ambiguous(_first: string, _second: string): Promise<readonly string[]> {
    return this.report('ambiguous');
  }

  @DistributedLock('held:<0>')
  async hold(_id: string, gate: Gate): Promise<string> {
    await gate.opened;
    return 'held';
  }

  @DistributedLock('held:<0>', { wait: 30 })
  async throws(_id: string): Promise<string> {
    calls.push('throws');
    return 'ran';
  }

  @DistributedLock('held:<0>', { wait: 0, onBusy: 'skip' })
  async skips(_id: string): Promise<string | undefined> {
    calls.push('skips');
    return 'ran';
  }

  @DistributedLock('held:<0>', {
    wait: 0,
    onBusy: (call) => {
      busy.push(call);
      return 'fallback';
    },
  })
  async answers(_id: string): Promise<string> {
    calls.push('answers');
    return 'ran';
  }

  @DistributedLock('this:<0>')
  async outer(id: string): Promise<readonly string[]> {
    return this.inner(id);
  }

  @DistributedLock('this:<0>', { wait: 0 })
  async inner(_id: string): Promise<readonly string[]> {
    return this.report('inner');
  }

  @DistributedLock('fails')
  async fails(error: Error): Promise<void> {
    throw error;
  }

  @DistributedLock('fails', { wait: 0, onBusy: 'skip' })
  async failsBusy(error: Error): Promise<void> {
    throw error;
  }

  @DistributedLock('a:<0>')
  @DistributedLock('b:<0>')
  async stacked(_id: string): Promise<readonly string[]> {
    expect(await this.locks.isLocked('a:1')).toBe(true);
    return this.report('stacked');
  }

  @Tag('above')
  @DistributedLock('meta')
  async above(_one: string, _two: string): Promise<void> {}

  @DistributedLock('meta')
  @Tag('below')
  async below(_one: string, _two: string): Promise<void> {}

  @DistributedLock('stream:<0>')
  stream(id: string, source: Observable<string>): Observable<string> {
    calls.push(`stream ${id}`);
    return source;
  }

  @DistributedLock('stream:<0>', { ttl: 100, renew: false })
  shortStream(_id: string, source: Observable<string>): Observable<string> {
    return source;
  }

  @DistributedLock('stream:<0>', { wait: 0, onBusy: 'skip' })
  skippedStream(_id: string): Observable<string> {
    return of('ran');
  }

  @DistributedLock('file:<0>')
  async file(_id: string, source: Readable): Promise<Readable> {
    return source;
  }

  @DistributedLock('file:<0>', { ttl: 100, renew: false })
  async shortFile(_id: string, source: Readable): Promise<Readable> {
    return source;
  }

  @DistributedLock('undeclared')
  async undeclared(): Promise<unknown> {
    return of('not covered');
  }
}

@Controller('orders')
class OrdersController {
  @Get('above/:id')
  @DistributedLock('order:<0>')
  async above(@Param('id') id: string): Promise<string> {
    return id;
  }

  @DistributedLock('order:<0>')
  @Get('below/:id')
  async below(@Param('id') id: string): Promise<string> {
    return id;
  }
}

class Derived extends Orders {}

let module: TestingModule;
let orders: Orders;
let locks: LockService;

beforeAll(async () => {
  module = await Test.createTestingModule({
    imports: [RedisLockTestingModule],
    providers: [Orders, Derived],
    controllers: [OrdersController],
  }).compile();
  module.useLogger(new RecordingLogger());
  orders = module.get(Orders);
  locks = module.get(LockService);
});
afterAll(() => module.close());
beforeEach(() => {
  calls = [];
  busy.length = 0;
});

describe('keys', () => {
  it('come from an argument, a path, several templates, the elements of a list, or a function', async () => {
    expect(await orders.byArgument('7')).toEqual(['order:7']);
    expect(await orders.byArgument(7)).toEqual(['order:7']);
    expect(await orders.byArgument(7n)).toEqual(['order:7']);
    expect(await orders.byArgument(false)).toEqual(['order:false']);
    expect(await orders.byPath({ customer: { id: 'c' } }, 's')).toEqual(['order:c:s']);
    expect(await orders.transfer({ from: 'b', to: 'a' })).toEqual(['account:a', 'account:b']);
    expect(await orders.transfer({ from: 'a', to: 'a' })).toEqual(['account:a']);
    expect(await orders.each({ items: [{ sku: 'y' }, { sku: 'x' }, { sku: 'y' }] })).toEqual(['sku:x', 'sku:y']);
    expect(await orders.byFunction({ id: 7 }, 'shop')).toEqual(['shop/7']);
    expect(await orders.byFunctionOfSeveral(['b', 'a'])).toEqual(['a', 'b']);
  });

  it.each([undefined, null, '', Number.NaN, Infinity, {}, [], new Date(0), () => 'f', Symbol('s')])(
    'are refused for the value %p, and the method does not run',
    async (value) => {
      await expect(orders.byArgument(value)).rejects.toBeInstanceOf(LockKeyError);
      await expect(orders.byPath({ customer: { id: value } }, 's')).rejects.toBeInstanceOf(LockKeyError);
      await expect(orders.each({ items: [{ sku: 'x' }, { sku: value }] })).rejects.toBeInstanceOf(LockKeyError);
      expect(calls).toEqual([]);
    },
  );

  it.each([undefined, null, {}, { customer: undefined }])('are refused for a path into %p', async (order) => {
    await expect(orders.byPath(order as Order, 's')).rejects.toThrow(/<0\.customer\.id> is undefined/);
  });

  it('are refused for a list that is empty or none', async () => {
    await expect(orders.each({ items: [] })).rejects.toThrow(/empty list/);
    await expect(orders.each({ items: 'x' as unknown as [] })).rejects.toThrow(/not a list/);
    await expect(orders.byFunctionOfSeveral([])).rejects.toBeInstanceOf(LockKeyError);
    await expect(orders.byFunctionOfSeveral([''])).rejects.toBeInstanceOf(LockKeyError);
    expect(calls).toEqual([]);
  });

  it('cannot be forged by a value', async () => {
    const one = await orders.byPath({ customer: { id: 'a:b' } }, 'c');
    const other = await orders.byPath({ customer: { id: 'a' } }, 'b:c');
    expect(one).not.toEqual(other);
    expect(await orders.ambiguous('a-b', 'c')).not.toEqual(await orders.ambiguous('a', 'b-c'));
    expect(await orders.ambiguous('%2D', 'c')).not.toEqual(await orders.ambiguous('-', 'c'));
    expect(await orders.byArgument('{t}')).toEqual(['order:%7Bt%7D']);
  });

  it.each(['', 'a<', '<a>', '<0', '<0.>', '<0..x>', '<0><1>', '<0>x<1>', '<0.*>:<1.*>', '<-1>'])(
    'are refused at decoration for the template %j',
    (template) => {
      expect(() => DistributedLock(template)).toThrow(LockKeyError);
    },
  );

  it('are refused at decoration for an empty list of templates', () => {
    expect(() => DistributedLock([])).toThrow(LockKeyError);
  });
});

describe('a busy lock', () => {
  it('throws, skips or answers, and never runs the method', async () => {
    const gate = new Gate();
    const held = orders.hold('1', gate);
    await eventually(() => locks.isLocked('held:1'));
    await expect(orders.throws('1')).rejects.toBeInstanceOf(LockTimeoutError);
    expect(await orders.skips('1')).toBeUndefined();
    expect(await orders.answers('1')).toBe('fallback');
    expect(busy).toHaveLength(1);
    expect(busy[0]).toMatchObject({ keys: ['held:1'], args: ['1'] });
    expect(busy[0]?.error).toBeInstanceOf(LockTimeoutError);
    expect(calls).toEqual([]);
    gate.open();
    expect(await held).toBe('held');
    expect(await orders.skips('1')).toBe('ran');
  });

  it('is not what a time-out inside the method is taken for', async () => {
    const error = new LockTimeoutError(['else'], { waited: 1, remaining: 1 });
    await expect(orders.failsBusy(error)).rejects.toBe(error);
  });
});

describe('a decorated method', () => {
  it('passes its own error on untouched, and gives the lock back', async () => {
    const error = new Error('business');
    await expect(orders.fails(error)).rejects.toBe(error);
    expect(await locks.isLocked('fails')).toBe(false);
  });

  it('re-enters through this', async () => {
    expect(await orders.outer('1')).toEqual(['this:1']);
    expect(calls).toEqual(['inner']);
  });

  it('can carry several locks', async () => {
    expect(await orders.stacked('1')).toEqual(['b:1']);
    expect(await locks.isLocked('a:1')).toBe(false);
  });

  it('keeps its metadata, name and length, above and below other decorators', () => {
    expect(Reflect.getMetadata('tag', Orders.prototype.above)).toBe('above');
    expect(Reflect.getMetadata('tag', Orders.prototype.below)).toBe('below');
    expect(Orders.prototype.above.name).toBe('above');
    expect(Orders.prototype.below).toHaveLength(2);
    for (const handler of [OrdersController.prototype.above, OrdersController.prototype.below]) {
      expect(Reflect.getMetadata(METHOD_METADATA, handler)).toBe(0);
      expect(Reflect.getMetadata(PATH_METADATA, handler)).toMatch(/:id$/);
    }
  });

  it('leaves the names of the class alone', () => {
    expect(orders.lockService).toBe('mine');
    expect(Object.keys(orders).toSorted()).toEqual(['lockService', 'locks']);
  });

  it('is inherited', async () => {
    expect(await module.get(Derived).byArgument('9')).toEqual(['order:9']);
  });

  it('does not run on an instance that Nest did not make', async () => {
    const alone = new Orders(locks);
    await expect(alone.byArgument('1')).rejects.toBeInstanceOf(LockNotWiredError);
    await expect(firstValueFrom(alone.stream('1', of('x')))).rejects.toBeInstanceOf(LockNotWiredError);
    expect(calls).toEqual([]);
  });

  it('keeps the application from starting without the module', async () => {
    @Injectable()
    class Alone {
      @DistributedLock('alone')
      async run(): Promise<void> {}
    }
    const compiling = Test.createTestingModule({ providers: [Alone] }).compile();
    await expect(compiling).rejects.toThrow(/can't resolve dependencies of the Alone/);
  });

  it('is refused where it cannot be covered', () => {
    const decorate = (target: object, key: string) => {
      const descriptor = Object.getOwnPropertyDescriptor(target, key) as TypedPropertyDescriptor<() => Promise<void>>;
      return () => DistributedLock('x')(target, key, descriptor);
    };
    class Odd {
      static async still(): Promise<void> {}
      async *generate(): AsyncGenerator<number> {
        yield 1;
      }
      get property(): number {
        return 1;
      }
    }
    expect(decorate(Odd, 'still')).toThrow(LockConfigError);
    expect(decorate(Odd.prototype, 'generate')).toThrow(LockConfigError);
    expect(decorate(Odd.prototype, 'property')).toThrow(LockConfigError);
  });

  it.each([{ ttl: 1 }, { wait: -1 }, { onBusy: 'wait' }, { unknown: 1 }])('refuses the options %j', (options) => {
    expect(() => DistributedLock('x', options as object)).toThrow(LockConfigError);
  });
});

describe('a method that resolves to a Node stream', () => {
  it('is held until the stream has been read', async () => {
    const stream = await orders.file('1', Readable.from(['a', 'b']));
    expect(await locks.isLocked('file:1')).toBe(true);
    expect(await stream.toArray()).toEqual(['a', 'b']);
    await eventually(async () => !(await locks.isLocked('file:1')));
  });

  it('has its stream destroyed when the lock is lost, also where nobody reads it', async () => {
    const stream = await orders.shortFile('2', new Readable({ read() {} }));
    await eventually(() => stream.destroyed);
    expect(stream.errored).toBeInstanceOf(LockLostError);
  });
});

describe('a method that returns an Observable', () => {
  it('is held from the subscription until the stream ends', async () => {
    const gate = new Gate();
    const source = concat(of('a'), new Observable<string>((to) => void gate.opened.then(() => to.complete())));
    const stream = orders.stream('1', source);
    expect(await locks.isLocked('stream:1')).toBe(false);
    const all = lastValueFrom(stream.pipe(toArray()));
    await eventually(() => locks.isLocked('stream:1'));
    await sleep(20);
    expect(await locks.isLocked('stream:1')).toBe(true);
    gate.open();
    expect(await all).toEqual(['a']);
    expect(await locks.isLocked('stream:1')).toBe(false);
    expect(calls).toEqual(['stream 1']);
  });

  it('is given back when the stream fails or its reader leaves', async () => {
    const error = new Error('broken');
    await expect(
      lastValueFrom(
        orders.stream(
          '2',
          throwError(() => error),
        ),
      ),
    ).rejects.toBe(error);
    expect(await locks.isLocked('stream:2')).toBe(false);
    const reader = orders.stream('3', NEVER).subscribe();
    await eventually(() => locks.isLocked('stream:3'));
    reader.unsubscribe();
    await eventually(async () => !(await locks.isLocked('stream:3')));
  });

  it('fails with the loss of the lock', async () => {
    await expect(lastValueFrom(orders.shortStream('4', NEVER))).rejects.toBeInstanceOf(LockLostError);
  });

  it('gives up its wait when its reader leaves', async () => {
    const held = await locks.acquire('stream:5');
    const reader = orders.stream('5', of('x')).subscribe();
    await eventually(async () => (await locks.inspect('stream:5'))?.waiting === 1);
    reader.unsubscribe();
    await eventually(async () => (await locks.inspect('stream:5'))?.waiting === 0);
    await held.release();
    expect(calls).toEqual([]);
  });

  it('is empty when it is skipped', async () => {
    const held = await locks.acquire('stream:6');
    expect(await lastValueFrom(orders.skippedStream('6').pipe(toArray()))).toEqual([]);
    await held.release();
  });

  it('must be declared to', async () => {
    await expect(orders.undeclared()).rejects.toThrow(/returned an Observable without being declared to/);
  });
});
