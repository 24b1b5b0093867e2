import 'reflect-metadata';
import { Inject, Injectable, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  IdempotencyConflictError,
  IdempotencyRunningError,
  IdempotencyService,
  Idempotent,
  memory,
  PrimitiveConfigError,
  PrimitiveKeyError,
  PrimitiveNotWiredError,
  RedisLockModule,
} from 'nest-redis-lock';
import { testServices, wire } from 'nest-redis-lock/testing';
import { Observable, of } from 'rxjs';
import type { EnterRequest } from '../../../lib/contracts/primitive-stores.js';
import { Gate } from '../../support/gate.js';
import { startLockApp } from '../../support/lock-app.js';
import { primitivesWith } from '../../support/primitives-with.js';
import { RecordingLogger } from '../../support/recording-logger.js';
import { ScriptedBackend } from '../../support/scripted-backend.js';
import { openBackend } from '../../support/open-backend.js';

interface Order {
  readonly orderId: string;
  readonly count: number;
  readonly hold?: Gate;
}

@Injectable()
class Orders {
  runs: string[] = [];

  constructor(@Inject(IdempotencyService) private readonly service: IdempotencyService) {}

  @Idempotent('order:<0.orderId>', { ttl: '1h', fingerprint: '<#0>' })
  async place(order: Order): Promise<string> {
    this.runs.push(order.orderId);
    return `${order.orderId}, attempt ${this.service.current()?.attempt}`;
  }

  @Idempotent((id: string) => `pay:${id}`, {
    fingerprint: (_id: string, amount: number) => amount,
    onRunning: 'throw',
    signal: (_id: string, _amount: number, signal?: AbortSignal) => signal,
  })
  async pay(id: string, amount: number, _signal?: AbortSignal, gate?: Gate): Promise<number> {
    this.runs.push(id);
    await gate?.opened;
    return amount;
  }

  @Idempotent('fails:<0>', { keepErrors: (error) => error instanceof RangeError })
  async fails(_id: string, error: Error): Promise<void> {
    this.runs.push(error.message);
    throw error;
  }
}

describe('@Idempotent', () => {
  const start = async () => {
    class Root {}
    const imports = [RedisLockModule.forRoot({ backend: memory() })];
    const app = await NestFactory.createApplicationContext(
      { module: Root, imports, providers: [Orders] },
      { logger: [] },
    );
    return { orders: app.get(Orders), [Symbol.asyncDispose]: () => app.close() };
  };

  it('runs the method once for each key, which knows its attempt', async () => {
    await using app = await start();
    const { orders } = app;
    const placed = [1, 1, 1].map((count) => orders.place({ orderId: 'a', count }));
    expect(await Promise.all(placed)).toEqual(Array(3).fill('a, attempt 1'));
    expect(await orders.place({ orderId: 'b', count: 1 })).toBe('b, attempt 1');
    expect(orders.runs).toEqual(['a', 'b']);
  });

  it('refuses other arguments under the same key, by a template or a function', async () => {
    await using app = await start();
    const { orders } = app;
    await orders.place({ orderId: 'a', count: 1 });
    await expect(orders.place({ orderId: 'a', count: 2 })).rejects.toThrow(IdempotencyConflictError);
    await orders.pay('a', 1);
    await expect(orders.pay('a', 2)).rejects.toThrow(IdempotencyConflictError);
    expect(orders.runs).toEqual(['a', 'a']);
  });

  it('refuses a call while another one runs, with onRunning "throw"', async () => {
    await using app = await start();
    const gate = new Gate();
    const first = app.orders.pay('a', 1, undefined, gate);
    await expect(app.orders.pay('a', 1)).rejects.toThrow(IdempotencyRunningError);
    gate.open();
    expect(await first).toBe(1);
  });

  it('passes a signal on to the wait', async () => {
    await using app = await start();
    const aborted = AbortSignal.abort(new Error('left'));
    await expect(app.orders.pay('a', 1, aborted)).rejects.toThrow('left');
    expect(app.orders.runs).toEqual([]);
  });

  it('keeps the errors that keepErrors names', async () => {
    await using app = await start();
    const { orders } = app;
    await expect(orders.fails('a', new RangeError('kept'))).rejects.toThrow('kept');
    await expect(orders.fails('a', new Error('new'))).rejects.toThrow('kept');
    await expect(orders.fails('b', new Error('not kept'))).rejects.toThrow('not kept');
    await expect(orders.fails('b', new Error('new'))).rejects.toThrow('new');
    expect(orders.runs).toEqual(['kept', 'not kept', 'new']);
  });

  it('refuses arguments that make no key', async () => {
    await using app = await start();
    await expect(app.orders.place({ count: 1 } as Order)).rejects.toThrow(PrimitiveKeyError);
    expect(app.orders.runs).toEqual([]);
  });

  it('is refused by a backend that keeps no results, with the remedy', async () => {
    const services = testServices({ backend: new ScriptedBackend() });
    const orders = wire(new Orders(services.idempotency), services);
    await expect(orders.pay('a', 1)).rejects.toThrow(
      /need a backend that keeps them.*"redis" or "backend: memory\(\)"/,
    );
    expect(orders.runs).toEqual([]);
    await services.close();
  });

  it('works on an instance of a unit test, and does not run on one without the service', async () => {
    const services = testServices();
    const orders = wire(new Orders(services.idempotency), services);
    expect([await orders.pay('a', 1), await orders.pay('a', 1)]).toEqual([1, 1]);
    expect(orders.runs).toEqual(['a']);
    await expect(new Orders(services.idempotency).pay('a', 1)).rejects.toThrow(PrimitiveNotWiredError);
    await services.close();
  });

  it('does not run the method where the service is a mock that does not call it', async () => {
    const orders = wire(new Orders(undefined as never), { idempotency: { run: async () => undefined } as never });
    await expect(orders.pay('a', 1)).rejects.toThrow(/is a mock/);
  });

  it.each([
    ['an unknown option', () => Idempotent('a', { expires: 1 } as never)],
    ['null for the options', () => Idempotent('a', null as never)],
    ['a ttl of 0', () => Idempotent('a', { ttl: 0 })],
    ['a fingerprint that is neither template nor function', () => Idempotent('a', { fingerprint: 1 } as never)],
    ['a signal that is no function', () => Idempotent('a', { signal: AbortSignal.abort() } as never)],
  ])('refuses %s at its declaration', (_, decorate) => {
    expect(decorate).toThrow(PrimitiveConfigError);
  });

  it('refuses a method that returns an Observable', () => {
    expect(() => {
      class Wrong {
        @(Idempotent('a') as MethodDecorator)
        stream(): Observable<number> {
          return of(1);
        }
      }
      return Wrong;
    }).toThrow(/returns an Observable; return a promise/);
  });
});

it('gives the result that another attempt kept, also to a call that stood still beyond its lease', async () => {
  const begin = async ({ token, fingerprint }: { token: number; fingerprint: string }) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
    return { state: 'undefined', token: token + 1, attempt: 1, fingerprint, payload: Buffer.alloc(0) } as const;
  };
  // Its first request only takes the lock.
  const enter = ({ lock }: EnterRequest) => openBackend(backend).acquire(lock);
  const backend = primitivesWith({ results: { enter, begin } });
  await using app = await startLockApp({ backend });
  let ran = false;
  const call = app.app.get(IdempotencyService).run('kept', { lease: 100 }, async () => (ran = true));
  await expect(call).resolves.toBeUndefined();
  expect(ran).toBe(false);
});

it('refuses a call inside of the run with its key, which would wait for itself, and says so', async () => {
  class Place {
    @Idempotent('order:<0>')
    async place(id: string): Promise<string> {
      return id;
    }
  }
  class PlaceTwice extends Place {
    @Idempotent('order:<0>')
    override async place(id: string): Promise<string> {
      return super.place(id);
    }
  }
  const services = testServices();
  const refused = wire(new PlaceTwice(), services).place('7');
  await expect(refused).rejects.toThrow(IdempotencyRunningError);
  await expect(refused).rejects.toThrow(
    'Idempotency key "order:7": this call is inside of the run with that key, and would wait for itself; give it ' +
      'another key, or call what the method does without the decorator',
  );
  await services.close();
});

describe('the check at the start', () => {
  @Injectable()
  class Mistaken {
    @Idempotent('order')
    async place(_id: string): Promise<void> {}
  }

  @Injectable()
  class Repeating {
    @Idempotent('payment:<0>')
    async pay(_id: string): Promise<void> {}

    @Idempotent('payment:<0>')
    async refund(_id: string): Promise<void> {}
  }

  @Injectable()
  class Meant {
    @Idempotent('sale:<0>')
    async sell(_id: string): Promise<void> {}

    @Idempotent('start')
    async start(): Promise<void> {}

    @Idempotent('import', { fingerprint: '<#0>' })
    async import(_file: string): Promise<void> {}

    @Idempotent(() => 'once')
    async once(_by: string): Promise<void> {}
  }

  async function warningsOf(provider: Type): Promise<string[]> {
    class Root {}
    const logger = new RecordingLogger();
    const imports = [RedisLockModule.forRoot({ backend: memory() })];
    const app = await NestFactory.createApplicationContext(
      { module: Root, imports, providers: [provider] },
      { logger, abortOnError: false },
    );
    await app.close();
    return logger.matching(/idempotent under one key/);
  }

  it('refuses methods that repeat the results of others', async () => {
    await expect(warningsOf(Repeating)).rejects.toThrow(
      'Repeating.pay and Repeating.refund are idempotent under one key template, "payment:<0>", so each repeats what the ' +
        'other has answered: give each a key of its own',
    );
  });

  it('warns of a method whose calls repeat the first', async () => {
    expect(await warningsOf(Mistaken)).toEqual([
      'Mistaken.place is idempotent under one key, "order", whatever its arguments are, so each call repeats the first: ' +
        `name them in it, as in "order:<0>"; where that is meant, give () => 'order'`,
    ]);
  });

  it('does not warn where each call has a key or a fingerprint of its own, or that is meant', async () => {
    expect(await warningsOf(Meant)).toEqual([]);
  });
});
