// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { DistributedLock } from 'nest-redis-lock';
import type { Observable } from 'rxjs';

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

  // @ts-expect-error no such option
  @DistributedLock('job', { tll: 1_000 })
  async misspelt(): Promise<void> {}
}
