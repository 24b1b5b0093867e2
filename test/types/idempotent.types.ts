// Checked by `npm run typecheck`: every line below an "@ts-expect-error" must be refused, and all others accepted.
import { StreamableFile } from '@nestjs/common';
import { Idempotent, type IdempotentOptions } from 'nest-redis-lock';
import type { Observable } from 'rxjs';

interface Order {
  readonly orderId: string;
  readonly parts: readonly { readonly sku: string }[];
}

const shared: IdempotentOptions = { ttl: '24h' };

export class IdempotentAccepted {
  @Idempotent('shared', shared)
  async sharedOptions(): Promise<void> {}

  @Idempotent('order:<0.orderId>', { ttl: '24h', fingerprint: '<#0>', onRunning: 'throw' })
  async template(_order: Order): Promise<string> {
    return '';
  }

  @Idempotent((order: Order) => `order:${order.orderId}`, {
    fingerprint: (order: Order, count: number) => [order.parts, count],
    signal: (_order: Order, _count: number, signal?: AbortSignal) => signal,
  })
  async functions(_order: Order, _count: number, _signal?: AbortSignal): Promise<void> {}
}

export class IdempotentRefused {
  // @ts-expect-error there is no such property
  @Idempotent('order:<0.id>')
  async property(_order: Order): Promise<void> {}

  // @ts-expect-error an object is no key part
  @Idempotent('order:<0>')
  async object(_order: Order): Promise<void> {}

  // @ts-expect-error a key for each element
  @Idempotent('sku:<0.parts.*.sku>')
  async several(_order: Order): Promise<void> {}

  // @ts-expect-error the fingerprint names a missing argument
  @Idempotent('order:<0.orderId>', { fingerprint: '<#1>' })
  async fingerprint(_order: Order): Promise<void> {}

  // @ts-expect-error the fingerprint function takes another argument
  @Idempotent('order:<0.orderId>', { fingerprint: (id: number) => id })
  async fingerprintFunction(_order: Order): Promise<void> {}

  // @ts-expect-error the key function takes another argument
  @Idempotent((id: number) => `order:${id}`)
  async keyFunction(_order: Order): Promise<void> {}

  // @ts-expect-error not a promise
  @Idempotent('order:<0>')
  sync(_id: string): string {
    return '';
  }

  // @ts-expect-error a stream cannot be kept
  @Idempotent('order:<0>')
  async stream(_id: string): Promise<StreamableFile> {
    return new StreamableFile(Buffer.from(''));
  }

  // @ts-expect-error an Observable cannot be kept
  @Idempotent('order:<0>')
  observable(_id: string): Observable<string> {
    throw new Error();
  }

  // @ts-expect-error no such mode
  @Idempotent('order:<0>', { onRunning: 'skip' })
  async mode(_id: string): Promise<void> {}
}
