// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { DistributedLock, fixedDelay, type Lock, type LockService } from 'nest-redis-lock';
import type { Observable } from 'rxjs';

declare const untold: any;

export class Accepted {
  @DistributedLock('order:<0>')
  async promise(_id: string): Promise<number> {
    return 1;
  }

  @DistributedLock(['a:<0>', 'b:<0>'], { ttl: 1_000, wait: Infinity })
  declare(_id: string): Observable<number> {
    throw new Error('only its type matters');
  }

  @DistributedLock((id: string) => id)
  async keyFunction(_id: string, _more: number): Promise<void> {}

  @DistributedLock((id: string, more: number) => [id, String(more)], { onBusy: ({ keys }) => keys })
  async keysFunction(_id: string, _more: number): Promise<readonly string[]> {
    return [];
  }

  @DistributedLock('job', { wait: 0, onBusy: 'skip' })
  async skipped(): Promise<void> {}

  @DistributedLock('job', { onBusy: 'skip' })
  async maybe(): Promise<number | undefined> {
    return 1;
  }

  @DistributedLock('job', { onBusy: 'skip' })
  emptied(): Observable<number> {
    throw new Error('only its type matters');
  }

  @DistributedLock('job', { ttl: '1.5m', wait: '250ms', maxHold: '2h', renew: { interval: '10s', timeout: 500 } })
  async durations(): Promise<void> {}

  @DistributedLock('job', untold)
  async withUntoldOptions(): Promise<number> {
    return 1;
  }

  @DistributedLock('job', { mode: 'read' })
  async reads(): Promise<void> {}

  @DistributedLock('job', { mode: 'write' })
  async writes(): Promise<void> {}

  @DistributedLock('generic:<0>')
  async generic<T>(value: T): Promise<T> {
    return value;
  }
}

export class Refused {
  // @ts-expect-error a sync method would become async
  @DistributedLock('order:<0>')
  sync(_id: string): number {
    return 1;
  }

  // @ts-expect-error the lock cannot cover what a generator yields
  @DistributedLock('order:<0>')
  async *generator(_id: string): AsyncGenerator<number> {
    yield 1;
  }

  // @ts-expect-error the key function takes a number where the method takes a string
  @DistributedLock((id: number) => String(id))
  async otherArgument(_id: string): Promise<void> {}

  // @ts-expect-error the key function takes an argument more than the method
  @DistributedLock((id: string, shop: string) => id + shop)
  async fewerArguments(_id: string): Promise<void> {}

  // @ts-expect-error a skipped call would resolve to undefined
  @DistributedLock('job', { onBusy: 'skip' })
  async neverUndefined(): Promise<number> {
    return 1;
  }

  // @ts-expect-error no such unit
  @DistributedLock('job', { ttl: '30x' })
  async otherUnit(): Promise<void> {}

  // @ts-expect-error no such mode
  @DistributedLock('job', { mode: 'shared' })
  async otherMode(): Promise<void> {}

  // @ts-expect-error no such option
  @DistributedLock('job', { tll: 1_000 })
  async misspelt(): Promise<void> {}
}

declare const locks: LockService;
declare const lock: Lock;

// @ts-expect-error no such unit
void locks.acquire('job', { ttl: '30x' });
// @ts-expect-error a string needs its unit
void locks.tryAcquire('job', { wait: '30' });
// @ts-expect-error no such option of the watchdog
void locks.acquire('job', { renew: { intervall: '1s' } });
// @ts-expect-error no such unit
void lock.extend('1 minute');
// @ts-expect-error no such unit
fixedDelay('1min');
void lock.extend('1m');
fixedDelay('50ms');

enum Region {
  North = 'north',
}

type OrderId = string & { readonly brand: unique symbol };

interface Order {
  readonly id: OrderId;
  readonly region: Region;
  readonly customer?: { readonly id: number; readonly address: { readonly zip: string | null } };
  readonly items: readonly { readonly sku: string; readonly tags: string[] }[];
  readonly placedAt: Date;
  readonly quantities: Record<string, number>;
  readonly pair: readonly [string, { readonly id: bigint }];
  readonly payment: { readonly kind: 'card'; readonly card: string } | { readonly kind: 'cash' };
  total(): number;
}

export class TemplatesThatFit {
  @DistributedLock('order:<0.id>:<0.region>:<1>')
  async paths(_order: Order, _dryRun: boolean): Promise<void> {}

  @DistributedLock(['customer:<0.customer.id?>', 'zip:<0.customer.address.zip?>'])
  async optional(_order: Order): Promise<void> {}

  @DistributedLock('sku:<0.items.*.sku>')
  async elements(_order: Order): Promise<void> {}

  @DistributedLock('first:<0.items.0.sku>:<0.pair.1.id>')
  async elementByNumber(_order: Order): Promise<void> {}

  @DistributedLock('stock:<0.quantities.teapot>')
  async record(_order: Order): Promise<void> {}

  @DistributedLock('payment:<0.payment.kind>')
  async commonOfUnion(_order: Order): Promise<void> {}

  @DistributedLock('order:<0.id>:<1.anything.at.all>')
  async untyped(_order: { id: unknown }, _more: any): Promise<void> {}

  @DistributedLock('order:<2>')
  async rest(..._ids: string[]): Promise<void> {}

  @DistributedLock('order:<1?>')
  async optionalArgument(_order: Order, _id?: number): Promise<void> {}

  @DistributedLock('order:<0.id>')
  async generic<T extends { id: string }>(order: T): Promise<T> {
    return order;
  }

  @DistributedLock(String.raw`order:<7>`)
  async madeAtRunTime(_id: string): Promise<void> {}

  @DistributedLock('order:<0.items.length>')
  declare(_order: Order): Observable<number> {
    throw new Error('only its type matters');
  }
}

export class TemplatesThatDoNot {
  // @ts-expect-error the method has no argument 1
  @DistributedLock('order:<1>')
  async noSuchArgument(_order: Order): Promise<void> {}

  // @ts-expect-error the method has no argument at all
  @DistributedLock('order:<0>')
  async noArgument(): Promise<void> {}

  // @ts-expect-error there is no property "custommer"
  @DistributedLock('order:<0.custommer.id>')
  async misspelt(_order: Order): Promise<void> {}

  // @ts-expect-error there is no property "identity"
  @DistributedLock('order:<0.customer.identity>')
  async misspeltDeep(_order: Order): Promise<void> {}

  // @ts-expect-error a Date is an object
  @DistributedLock('order:<0.placedAt>')
  async date(_order: Order): Promise<void> {}

  // @ts-expect-error an order is an object
  @DistributedLock('order:<0>')
  async object(_order: Order): Promise<void> {}

  // @ts-expect-error a list needs a *
  @DistributedLock('sku:<0.items.sku>')
  async list(_order: Order): Promise<void> {}

  // @ts-expect-error a customer is not a list
  @DistributedLock('sku:<0.customer.*.id>')
  async notAList(_order: Order): Promise<void> {}

  // @ts-expect-error a cash payment has no card
  @DistributedLock('card:<0.payment.card>')
  async notInEveryMember(_order: Order): Promise<void> {}

  // @ts-expect-error a method is not a value
  @DistributedLock('order:<0.total>')
  async method(_order: Order): Promise<void> {}

  // @ts-expect-error the string may be an order
  @DistributedLock('order:<0>')
  async sometimes(_order: Order | string): Promise<void> {}

  // @ts-expect-error the second of the templates
  @DistributedLock(['order:<0.id>', 'order:<0.ident>'])
  async oneOfSeveral(_order: Order): Promise<void> {}

  // @ts-expect-error a placeholder begins with the number of an argument
  @DistributedLock('order:<order.id>')
  async byName(_order: Order): Promise<void> {}

  // @ts-expect-error the same for an Observable
  @DistributedLock('order:<0.ident>')
  declare(_order: Order): Observable<number> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the same with options
  @DistributedLock('order:<0.ident>', { wait: 0 })
  async withOptions(_order: Order): Promise<void> {}
}

export class PromisesThatEndTooSoon {
  // @ts-expect-error the promise is fulfilled before the stream begins
  @DistributedLock('job')
  async observable(): Promise<Observable<number>> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the promise is fulfilled before the generator begins
  @DistributedLock(() => 'job')
  async generator(): Promise<AsyncGenerator<number>> {
    throw new Error('only its type matters');
  }
}

export class HashedParts {
  @DistributedLock('list:<#0>')
  async object(_filter: { color?: string; sizes: number[] }): Promise<void> {}

  @DistributedLock('list:<#0.filter>:<1>')
  async path(_query: { filter: { color: string } | null }, _page: number): Promise<void> {}

  @DistributedLock('list:<#0>')
  async scalar(_id: string | Date): Promise<void> {}

  // @ts-expect-error an object is no key part without the hash
  @DistributedLock('list:<0>')
  async withoutHash(_filter: { color: string }): Promise<void> {}

  // @ts-expect-error there is no such property
  @DistributedLock('list:<#0.filtre>')
  async misspelt(_query: { filter: { color: string } }): Promise<void> {}

  // @ts-expect-error there is no such argument
  @DistributedLock('list:<#1>')
  async noArgument(_filter: { color: string }): Promise<void> {}

  // @ts-expect-error a function cannot be hashed
  @DistributedLock('list:<#0>')
  async aFunction(_filter: () => string): Promise<void> {}
}

export class ForeignTemplates {
  @DistributedLock('{shop}:<0>')
  async tag(_id: string): Promise<void> {}

  @DistributedLock('order:c#<0>')
  async sharp(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @DistributedLock('user:{0}')
  async number(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @DistributedLock('{0}')
  async onlyNumber(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @DistributedLock('user:{id}')
  async name(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @DistributedLock('me:${userId}')
  async interpolation(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @DistributedLock('#id')
  async expression(_id: string): Promise<void> {}
}

interface Tenant {
  readonly tenant: string;
}

export class InstanceAccepted {
  constructor(
    readonly tenant: string,
    private readonly hidden: string,
    readonly part?: { readonly id: number },
  ) {}

  @DistributedLock('<this.tenant>:<this.part.id?>:<#this.part?>:<this.constructor.name>:<0>')
  async properties(_id: string): Promise<void> {}

  // The types say nothing of a private property.
  @DistributedLock('<this.hidden>:<0>')
  async privately(_id: string): Promise<string> {
    return this.hidden;
  }

  @DistributedLock(
    function (this: InstanceAccepted, id: string) {
      return `${this.hidden}:${id}`;
    },
    {
      onBusy(this: InstanceAccepted) {
        return this.tenant;
      },
      signal(this: Tenant, _id: string, given?: AbortSignal) {
        return given;
      },
    },
  )
  async functions(_id: string, _given?: AbortSignal): Promise<string> {
    return '';
  }

  @DistributedLock('job', { signal: AbortSignal.timeout(1_000) })
  async signal(): Promise<void> {}
}

export class InstanceRefused {
  readonly tenant = 'north';

  // @ts-expect-error there is no property "tennant"
  @DistributedLock('<this.tennant>:<0>')
  async misspelt(_id: string): Promise<void> {}

  // @ts-expect-error a method is no part of a key
  @DistributedLock('<this.misspelt>')
  async method(): Promise<void> {}

  // @ts-expect-error it needs a property
  @DistributedLock('<this>')
  async whole(): Promise<void> {}

  // @ts-expect-error the key function has the instance of another class as `this`
  @DistributedLock(function (this: InstanceAccepted, id: string) {
    return `${this.part?.id}:${id}`;
  })
  async keyFunction(_id: string): Promise<void> {}

  // @ts-expect-error the same for an option
  @DistributedLock('order:<0>', {
    onBusy(this: InstanceAccepted) {
      return this.tenant;
    },
  })
  async option(_id: string): Promise<string> {
    return '';
  }

  // @ts-expect-error the signal function takes a number where the method takes a string
  @DistributedLock('order:<0>', { signal: (id: number) => AbortSignal.timeout(id) })
  async signal(_id: string): Promise<void> {}

  // @ts-expect-error a number is no signal
  @DistributedLock('order:<0>', { signal: () => 1 })
  async noSignal(_id: string): Promise<void> {}
}

export class AbsentAccepted {
  @DistributedLock('page:<0?>')
  async optional(_lang?: string): Promise<void> {}

  @DistributedLock(['page:<0?>', 'page:<1.lang?>:<#1?>:<#2.filter>'])
  async several(_lang: string | null, _filter?: { lang?: string }, _query?: { filter: unknown }): Promise<void> {}

  @DistributedLock('page:<0?>')
  async withDefault(_page = 1): Promise<void> {}

  @DistributedLock('page:<0?>:<1?>')
  async present(_page: number, _untold: any): Promise<void> {}

  @DistributedLock('page:<0>')
  async unknown(_page?: unknown): Promise<void> {}

  @DistributedLock('page:<#0>')
  async hashedNull(_filter: object | null): Promise<void> {}

  @DistributedLock('sku:<0.items.*.sku?>')
  async elements(_order?: { items?: { sku?: string }[] }): Promise<void> {}
}

export class AbsentRefused {
  // @ts-expect-error it may be undefined
  @DistributedLock('page:<0>')
  async optional(_lang?: string): Promise<void> {}

  // @ts-expect-error the same by its type
  @DistributedLock('page:<0>')
  async byType(_lang: string | undefined): Promise<void> {}

  // @ts-expect-error it may be null
  @DistributedLock('page:<0>')
  async orNull(_lang: string | null): Promise<void> {}

  // @ts-expect-error a default is not among the arguments
  @DistributedLock('page:<0>')
  async withDefault(_page = 1): Promise<void> {}

  // @ts-expect-error a property that may be absent
  @DistributedLock('page:<0.lang>')
  async property(_filter: { lang?: string }): Promise<void> {}

  // @ts-expect-error a property of what may be absent
  @DistributedLock('page:<0.lang>')
  async ofAbsent(_filter: { lang: string } | null): Promise<void> {}

  // @ts-expect-error undefined cannot be hashed
  @DistributedLock('page:<#0>')
  async hashed(_filter?: object): Promise<void> {}

  // @ts-expect-error the list may be absent
  @DistributedLock('sku:<0.items.*.sku>')
  async list(_order: { items?: { sku: string }[] }): Promise<void> {}

  // @ts-expect-error the second of the templates
  @DistributedLock(['page:<0>', 'page:<1>'])
  async oneOfSeveral(_page: string, _lang?: string): Promise<void> {}

  // @ts-expect-error an object is no key part, present or not
  @DistributedLock('page:<0?>')
  async object(_filter?: object): Promise<void> {}

  // @ts-expect-error there is no property "lagn"
  @DistributedLock('page:<0.lagn?>')
  async misspelt(_filter?: { lang: string }): Promise<void> {}
}

export abstract class GenericRepository<Row extends { id: string }> {
  protected abstract readonly table: string;
  readonly name = 'rows';
  protected readonly rows: Row[] = [];

  @DistributedLock('<this.name>:<0>')
  async template(_id: string): Promise<void> {}

  @DistributedLock(function (this: { readonly name: string }, id: string) {
    return `${this.name}:${id}`;
  })
  async function(_id: string): Promise<void> {}

  @DistributedLock('<this.table>:<this.rows.length>:<0>')
  async hidden(_id: string): Promise<void> {}
}
