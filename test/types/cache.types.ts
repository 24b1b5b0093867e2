// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { StreamableFile } from '@nestjs/common';
import { Cached, CacheEvict, CachePut, type CachedOptions } from 'nest-redis-lock';
import type { Readable } from 'node:stream';
import type { Observable } from 'rxjs';

interface Product {
  readonly id: number;
  readonly shop: { readonly slug: string };
  readonly parts: readonly { readonly sku: string }[];
}

const shared: CachedOptions = { ttl: '1h' };
const tagged = { ttl: '1h', tags: ['product:<0>'] } as const;
declare const untold: any;

export class CachedAccepted {
  @Cached('shared', shared)
  async sharedOptions(): Promise<void> {}

  @Cached('shared', { ...shared, ttl: '2h', lock: { lease: '1s', wait: '2s' } })
  async spreadOptions(): Promise<void> {}

  @Cached('shared', untold)
  async withUntoldOptions(): Promise<void> {}

  @Cached('product:<0>', tagged)
  async taggedElsewhere(_id: number): Promise<void> {}

  @Cached('product:<0>')
  async argument(_id: number): Promise<string> {
    return '';
  }

  @Cached('product:<0.shop.slug>:<0.id>', { ttl: '5m', tags: ['shop:<0.shop.slug>', 'sku:<0.parts.*.sku>', 'all'] })
  async path(_product: Product): Promise<void> {}

  @Cached((id: number) => `product:${id}`)
  async keyFunction(_id: number, _shop: string): Promise<void> {}

  @Cached('product:<0>', {
    tags: (id: number) => [`product:${id}`],
    condition: (id: number, fresh?: boolean) => id > 0 && !fresh,
    unless: (result: string | null, id: number) => result === null || id === 1,
  })
  async options(_id: number, _fresh?: boolean): Promise<string | null> {
    return null;
  }

  @Cached((id: number) => String(id), { unless: (result) => result === null, condition: () => true })
  async withoutParameters(_id: number): Promise<string | null> {
    return null;
  }

  @Cached('product:<0>', { unless: (result: unknown) => !result })
  async generic<T>(_id: number, value: T): Promise<T> {
    return value;
  }

  @Cached('anything')
  async any(): Promise<any> {}

  @Cached('anything', { unless: (result: Product) => result.id === 0 })
  async anyResult(): Promise<any> {}

  @Cached('product:<0>', {
    forceFresh: (_id: number, fresh: boolean) => fresh,
    signal: (_id: number, _fresh: boolean, signal?: AbortSignal) => signal,
  })
  async perCall(_id: number, _fresh: boolean, _signal?: AbortSignal): Promise<string> {
    return '';
  }

  @Cached('bytes')
  async bytes(): Promise<Buffer> {
    return Buffer.alloc(0);
  }
}

export class CachedRefused {
  // @ts-expect-error the tag names an object
  @Cached('shared', tagged)
  async taggedElsewhere(_product: Product): Promise<void> {}

  // @ts-expect-error a sync method would become async
  @Cached('product:<0>')
  sync(_id: number): string {
    return '';
  }

  // @ts-expect-error a result that is an Observable cannot be stored
  @Cached('product:<0>')
  observable(_id: number): Observable<string> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the same within a promise
  @Cached('product')
  async promiseOfObservable(): Promise<Observable<string>> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the same for a stream
  @Cached('product')
  async stream(): Promise<Readable | null> {
    return null;
  }

  // @ts-expect-error the same for a stream of the web
  @Cached('product')
  async webStream(): Promise<ReadableStream> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the same for a file, and with a key function
  @Cached(() => 'product')
  async file(): Promise<StreamableFile> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the method has no argument 1
  @Cached('product:<1>')
  async noSuchArgument(_id: number): Promise<void> {}

  // @ts-expect-error there is no property "slugg"
  @Cached('product:<0.shop.slugg>')
  async misspelt(_product: Product): Promise<void> {}

  // @ts-expect-error several keys
  @Cached('sku:<0.parts.*.sku>')
  async eachElement(_product: Product): Promise<void> {}

  // @ts-expect-error a list of keys
  @Cached(['product:<0>'])
  async list(_id: number): Promise<void> {}

  // @ts-expect-error a function that makes several
  @Cached((id: number) => [String(id)])
  async severalMade(_id: number): Promise<void> {}

  // @ts-expect-error the key function takes a string where the method takes a number
  @Cached((id: string) => id)
  async otherArgument(_id: number): Promise<void> {}

  // @ts-expect-error there is no property "ident" for the tag
  @Cached('product:<0.id>', { tags: ['product:<0.ident>'] })
  async tag(_product: Product): Promise<void> {}

  // @ts-expect-error the function of the tags takes a string where the method takes a number
  @Cached('product:<0>', { tags: (id: string) => [id] })
  async tagsFunction(_id: number): Promise<void> {}

  // @ts-expect-error the condition takes an argument more than the method
  @Cached('product:<0>', { condition: (id: number, shop: string) => id > shop.length })
  async condition(_id: number): Promise<void> {}

  // @ts-expect-error the result may be null
  @Cached('product:<0>', { unless: (result: string) => result === '' })
  async result(_id: number): Promise<string | null> {
    return null;
  }

  // @ts-expect-error the same with a key function
  @Cached((id: number) => String(id), { unless: (result: string) => result === '' })
  async resultToo(_id: number): Promise<string | null> {
    return null;
  }

  // @ts-expect-error no such option
  @Cached('product', { tll: '5m' })
  async option(): Promise<void> {}

  // @ts-expect-error it takes a string where the method takes a boolean
  @Cached('product', { forceFresh: (fresh: string) => fresh === '' })
  async forced(_fresh: boolean): Promise<void> {}

  // @ts-expect-error no such duration
  @Cached('product', { ttl: '5 minutes' })
  async duration(): Promise<void> {}
}

export class EvictAccepted {
  @CacheEvict('product:<0.id>')
  async template(_product: Product): Promise<void> {}

  @CacheEvict(['product:<0.id>', 'sku:<0.parts.*.sku>'], { when: 'both', barrier: '200ms', onRedisError: 'throw' })
  async templates(_product: Product): Promise<void> {}

  @CacheEvict((product: Product) => [`product:${product.id}`])
  async function(_product: Product): Promise<void> {}

  @CacheEvict([], { tags: ['shop:<0.shop.slug>'], prefix: 'product:<0.id>:' })
  async tagsAndPrefix(_product: Product): Promise<void> {}

  @CacheEvict(() => [], { tags: (product: Product) => [product.shop.slug] })
  async tagsFunction(_product: Product): Promise<void> {}
}

export class EvictRefused {
  // @ts-expect-error a sync method would become async
  @CacheEvict('product:<0>')
  sync(_id: number): void {}

  // @ts-expect-error the promise is fulfilled before the work begins
  @CacheEvict('product')
  async observable(): Promise<Observable<void>> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the second of the templates
  @CacheEvict(['product:<0.id>', 'product:<0.ident>'])
  async oneOfSeveral(_product: Product): Promise<void> {}

  // @ts-expect-error the key function takes a string where the method takes a product
  @CacheEvict((id: string) => id)
  async otherArgument(_product: Product): Promise<void> {}

  // @ts-expect-error a shop is an object
  @CacheEvict([], { tags: ['shop:<0.shop>'] })
  async tag(_product: Product): Promise<void> {}

  // @ts-expect-error the method has no argument 1
  @CacheEvict([], { prefix: 'product:<1>:' })
  async prefix(_product: Product): Promise<void> {}

  // @ts-expect-error several prefixes
  @CacheEvict([], { prefix: 'sku:<0.parts.*.sku>:' })
  async prefixes(_product: Product): Promise<void> {}

  // @ts-expect-error no such moment
  @CacheEvict('product', { when: 'later' })
  async moment(): Promise<void> {}
}

export class PutAccepted {
  @CachePut('product:<0.id>', { ttl: '5m', jitter: 0, staleTtl: '1h', tags: ['all'] })
  async result(product: Product): Promise<Product> {
    return product;
  }

  @CachePut((id: number) => `product:${id}`, {
    value: (result: { product: Product }, id: number) => ({ ...result.product, id }),
    unless: (result: { product: Product }) => result.product.id === 0,
    condition: (id: number) => id > 0,
  })
  async part(_id: number): Promise<{ product: Product }> {
    throw new Error('only its type matters');
  }
}

export class PutRefused {
  // @ts-expect-error a sync method would become async
  @CachePut('product:<0>')
  sync(_id: number): string {
    return '';
  }

  // @ts-expect-error a result that is a stream cannot be stored
  @CachePut('product')
  async stream(): Promise<Readable> {
    throw new Error('only its type matters');
  }

  // @ts-expect-error the value function takes a string where the result is a number
  @CachePut('product', { value: (result: string) => result })
  async value(): Promise<number> {
    return 1;
  }

  // @ts-expect-error several keys
  @CachePut('sku:<0.parts.*.sku>')
  async eachElement(_product: Product): Promise<void> {}

  // @ts-expect-error an option of @Cached only
  @CachePut('product', { softTimeout: '5m' })
  async option(): Promise<void> {}
}

export class HashedParts {
  @Cached('list:<#0>')
  async object(_filter: { color?: string; sizes: number[] }): Promise<void> {}

  @Cached('list:<#0.filter>:<1>')
  async path(_query: { filter: { color: string } | null }, _page: number): Promise<void> {}

  @Cached('list:<#0>')
  async scalar(_id: string | Date): Promise<void> {}

  // @ts-expect-error an object is no key part without the hash
  @Cached('list:<0>')
  async withoutHash(_filter: { color: string }): Promise<void> {}

  // @ts-expect-error there is no such property
  @Cached('list:<#0.filtre>')
  async misspelt(_query: { filter: { color: string } }): Promise<void> {}

  // @ts-expect-error there is no such argument
  @Cached('list:<#1>')
  async noArgument(_filter: { color: string }): Promise<void> {}

  // @ts-expect-error a function cannot be hashed
  @Cached('list:<#0>')
  async aFunction(_filter: () => string): Promise<void> {}
}

export class ForeignTemplates {
  @Cached('{shop}:<0>')
  async tag(_id: string): Promise<void> {}

  @Cached('order:c#<0>')
  async sharp(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @Cached('user:{0}')
  async number(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @Cached('{0}')
  async onlyNumber(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @Cached('user:{id}')
  async name(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @Cached('me:${userId}')
  async interpolation(_id: string): Promise<void> {}

  // @ts-expect-error text: all calls would share one key
  @Cached('#id')
  async expression(_id: string): Promise<void> {}
}

export class InstanceParts {
  readonly shop = 'berlin';

  @Cached('price:<this.shop>:<0>', { tags: ['shop:<this.shop>'] })
  async template(_id: string): Promise<void> {}

  @CacheEvict([], { prefix: '<this.shop>:', tags: ['shop:<this.shop>'] })
  async prefix(): Promise<void> {}

  @Cached(
    function (this: InstanceParts, id: string) {
      return `${this.shop}:${id}`;
    },
    {
      unless(this: InstanceParts, result: string) {
        return result === this.shop;
      },
    },
  )
  async functions(_id: string): Promise<string> {
    return '';
  }

  // @ts-expect-error there is no property "shopp"
  @Cached('price:<this.shopp>:<0>')
  async misspelt(_id: string): Promise<void> {}

  // @ts-expect-error the same in a tag
  @CachePut('price:<0>', { tags: ['shop:<this.shopp>'] })
  async tag(_id: string): Promise<void> {}

  // @ts-expect-error the key function has the instance of another class as `this`
  @CachePut(function (this: CachedAccepted) {
    return String(this.any);
  })
  async keyFunction(): Promise<void> {}

  // @ts-expect-error the same for an option
  @Cached('price', {
    condition(this: CachedAccepted) {
      return this instanceof CachedAccepted;
    },
  })
  async option(): Promise<void> {}
}

export class AbsentParts {
  @Cached('page:<0?>', { tags: ['lang:<0?>'] })
  async optional(_lang?: string): Promise<void> {}

  @CacheEvict([], { prefix: 'page:<0?>:', tags: ['lang:<0?>'] })
  async evict(_lang?: string): Promise<void> {}

  // @ts-expect-error it may be undefined
  @CacheEvict([], { prefix: 'page:<0>:' })
  async prefix(_lang?: string): Promise<void> {}

  // @ts-expect-error the same in a tag
  @CachePut('page', { tags: ['lang:<0>'] })
  async tag(_lang?: string): Promise<void> {}

  // @ts-expect-error the same in a key
  @Cached('page:<0>')
  async key(_lang?: string): Promise<void> {}
}
