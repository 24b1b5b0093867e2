// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { Semaphore } from 'nest-redis-lock';
import type { Observable } from 'rxjs';

export class Accepted {
  @Semaphore('report:<0>', { permits: 3 })
  async promise(_id: string): Promise<number> {
    return 1;
  }

  @Semaphore('report:<0.customer.id>', { permits: 3, count: 2, ttl: '10s', wait: Infinity })
  declare(_order: { customer: { id: number } }): Observable<number> {
    throw new Error('only its type matters');
  }

  @Semaphore((id: string) => id, { permits: 1, onBusy: ({ error }) => error.waited })
  async keyFunction(_id: string, _more: number): Promise<void> {}

  @Semaphore('job', { permits: 1, onBusy: 'skip' })
  async skipped(): Promise<void> {}
}

export class Refused {
  // @ts-expect-error a sync method would become async
  @Semaphore('report:<0>', { permits: 1 })
  sync(_id: string): number {
    return 1;
  }

  // @ts-expect-error a semaphore needs its number of permits
  @Semaphore('report:<0>', { wait: 0 })
  async withoutPermits(_id: string): Promise<void> {}

  // @ts-expect-error there is no such argument
  @Semaphore('report:<1>', { permits: 1 })
  async noArgument(_id: string): Promise<void> {}

  // @ts-expect-error an object cannot be part of a key
  @Semaphore('report:<0>', { permits: 1 })
  async object(_report: { id: string }): Promise<void> {}

  // @ts-expect-error one call takes permits of one semaphore
  @Semaphore('report:<0.*.id>', { permits: 1 })
  async several(_reports: { id: string }[]): Promise<void> {}

  // @ts-expect-error the key function takes a number where the method takes a string
  @Semaphore((id: number) => String(id), { permits: 1 })
  async otherArgument(_id: string): Promise<void> {}

  // @ts-expect-error a skipped call resolves to undefined
  @Semaphore('job', { permits: 1, onBusy: 'skip' })
  async notSkippable(): Promise<number> {
    return 1;
  }

  // @ts-expect-error the permit cannot cover what a generator yields
  @Semaphore('report:<0>', { permits: 1 })
  async *generator(_id: string): AsyncGenerator<number> {
    yield 1;
  }
}
