import 'reflect-metadata';
import { Controller, Get, Inject, Injectable, Param, SetMetadata } from '@nestjs/common';
import { Cached, CacheEvict, CachePut, CacheService, DistributedLock, LockService } from 'nest-redis-lock';
import { cacheApp, type CacheApp } from './cache-app.js';

/** Options as of JavaScript. */
export function untyped(options: object): object {
  return options;
}

export interface Product {
  id: number;
  price: number;
  parts?: { sku: string }[];
}

export const calls: string[] = [];

const Tag = (value: string) => SetMetadata('tag', value);

export
@Injectable()
class Catalogue {
  prices = new Map<unknown, number>();
  /** A name that the injection must not take. */
  cacheService = 'mine';

  private async load(name: string, id: unknown): Promise<Product> {
    calls.push(`${name} ${String(id)}`);
    return { id: id as number, price: this.prices.get(id) ?? 1 };
  }

  @Cached('product:<0>')
  async byArgument(id: unknown): Promise<Product> {
    return this.load('byArgument', id);
  }

  @Cached('product:<0.id>:<1>')
  async byPath(product: { id: unknown } | undefined, _shop?: unknown): Promise<Product> {
    return this.load('byPath', product?.id);
  }

  @Cached((product: Product, shop: string) => `${shop}/${product.id}`)
  async byFunction(product: Product, _shop: string): Promise<Product> {
    return this.load('byFunction', product.id);
  }

  @Cached((key: unknown) => key as string)
  async byNoKey(_key: unknown): Promise<void> {
    calls.push('byNoKey');
  }

  @Cached('tagged:<0.id>', { tags: ['part:<0.parts.*.sku>', 'catalogue'] })
  async tagged(product: Required<Product>): Promise<Product> {
    return this.load('tagged', product.id);
  }

  @Cached('tagged:<0>', { tags: (id: number) => [`even:${id % 2 === 0}`] })
  async taggedByFunction(id: number): Promise<Product> {
    return this.load('taggedByFunction', id);
  }

  @Cached('fresh:<0>', { condition: (_id: number, fresh?: boolean) => !fresh })
  async unlessFresh(id: number, _fresh?: boolean): Promise<Product> {
    return this.load('unlessFresh', id);
  }

  @Cached('free:<0>', { unless: ({ price }: Product, id: number) => price === 0 && id !== 7 })
  async unlessFree(id: number): Promise<Product> {
    return this.load('unlessFree', id);
  }

  @Cached('fails:<0>')
  async fails(_id: number, error: Error): Promise<never> {
    calls.push('fails');
    throw error;
  }

  @Cached('stream:<0>')
  async stream(_kind: string, make: () => unknown): Promise<unknown> {
    calls.push('stream');
    return make();
  }

  @Cached('outer:<0>')
  async outer(id: number): Promise<Product> {
    calls.push('outer');
    return this.byArgument(id);
  }

  @Tag('above')
  @Cached('meta')
  async above(_one: string, _two: string): Promise<void> {}

  @Cached('meta')
  @Tag('below')
  async below(_one: string, _two: string): Promise<void> {}

  @CacheEvict('product:<0.id>')
  async save(product: Product): Promise<string> {
    calls.push('save');
    this.prices.set(product.id, product.price);
    return 'saved';
  }

  @CacheEvict('product:<0.id>')
  async saveAndChange(product: Product): Promise<void> {
    product.id = 99;
  }

  @CacheEvict(['product:<0.id>', 'part:<0.parts.*.sku>'])
  async saveParts(_product: Required<Product>): Promise<void> {}

  @CacheEvict((ids: number[]) => ids.map((id) => `product:${id}`))
  async saveAll(_ids: number[]): Promise<void> {}

  @CacheEvict([], { tags: ['part:<0>'], prefix: 'free:<0>' })
  async savePart(_sku: string): Promise<void> {}

  @CacheEvict([], { tags: (sku: string) => [`part:${sku}`] })
  async savePartByFunction(_sku: string): Promise<void> {}

  @CacheEvict('product:<0>', { when: 'after' })
  async evictAfter(id: number, body: () => Promise<unknown>): Promise<unknown> {
    calls.push(`evictAfter ${id}`);
    return body();
  }

  @CacheEvict('product:<0>', { when: 'before' })
  async evictBefore(_id: number, body: () => Promise<unknown>): Promise<unknown> {
    return body();
  }

  @CacheEvict('product:<0>', { when: 'both' })
  async evictBoth(_id: number, body: () => Promise<unknown>): Promise<unknown> {
    return body();
  }

  @CachePut('product:<0.id>')
  async put(product: Product): Promise<Product> {
    return product;
  }

  @CachePut('product:<0.id>', {
    value: ({ saved }: { saved: Product }, { id }: Product) => ({ ...saved, price: saved.price + id }),
    condition: ({ id }: Product) => id !== 0,
    unless: ({ saved }: { saved: Product }) => saved.price === 0,
    tags: ['part:<1>'],
  })
  async putPart(product: Product, _sku: string): Promise<{ saved: Product }> {
    return { saved: product };
  }

  @CachePut('product:<0>', { value: () => 'value' })
  async putValue(_id: number, make: () => unknown): Promise<unknown> {
    return make();
  }

  @CachePut('product:<0>', { condition: () => false })
  async putNever(_id: number, make: () => unknown): Promise<unknown> {
    return make();
  }

  @CachePut('product:<0>')
  async putChanged(id: unknown, make: () => unknown): Promise<unknown> {
    calls.push(`putChanged ${String(id)}`);
    return make();
  }
}

export class Derived extends Catalogue {}

/** What the decorators do when they stand on one method, in either order. */
@Injectable()
class Stacked {
  constructor(@Inject(LockService) readonly locks: LockService) {}

  private async report(name: string): Promise<readonly string[]> {
    calls.push(name);
    return this.locks.current()?.keys ?? [];
  }

  @Cached('cache-above:<0>')
  @DistributedLock('lock:<0>', { wait: 0 })
  async cacheAbove(_id: string): Promise<readonly string[]> {
    return this.report('cacheAbove');
  }

  @DistributedLock('lock:<0>', { wait: 0 })
  @Cached('cache-below:<0>')
  async cacheBelow(_id: string): Promise<readonly string[]> {
    return this.report('cacheBelow');
  }

  @CacheEvict('cache-above:<0>')
  @DistributedLock('lock:<0>', { wait: 0 })
  @CachePut('cache-below:<0>')
  async evictAndPut(_id: string): Promise<readonly string[]> {
    return [...(await this.report('evictAndPut')), 'put'];
  }
}

@Controller()
class CatalogueController {
  @Get('above/:id')
  @Cached('http:<0>')
  async above(@Param('id') id: string): Promise<string> {
    calls.push(`above ${id}`);
    return id;
  }

  @Cached('http:<0>')
  @Get('below/:id')
  async below(@Param('id') id: string): Promise<string> {
    calls.push(`below ${id}`);
    return id;
  }
}

export let served: CacheApp;

export let cache: CacheService;

export let catalogue: Catalogue;

export let stacked: Stacked;

/** An application with a catalogue whose methods are cached, for each test. */
export function startCatalogue(): void {
  beforeEach(async () => {
    calls.length = 0;
    served = await cacheApp({ providers: [Catalogue, Derived, Stacked], controllers: [CatalogueController] });
    cache = served.cache;
    catalogue = served.app.get(Catalogue);
    stacked = served.app.get(Stacked);
  });
  afterEach(() => served.close());
}
