import { AsyncLocalStorage } from 'node:async_hooks';
import { Injectable } from '@nestjs/common';
import { Pool, type PoolClient, type QueryResult } from 'pg';

type Transaction = { readonly client: PoolClient; readonly afterCommit: (() => void)[] };

/** Stands for the library that keeps the transactions of an application. */
@Injectable()
export class Transactions {
  private readonly open = new AsyncLocalStorage<Transaction>();

  constructor(private readonly pool: Pool) {}

  async run<T>(body: () => Promise<T>): Promise<T> {
    if (this.open.getStore()) return body();
    const transaction: Transaction = { client: await this.pool.connect(), afterCommit: [] };
    const { client } = transaction;
    try {
      await client.query('BEGIN');
      const result = await this.open.run(transaction, body);
      await client.query('COMMIT');
      for (const act of transaction.afterCommit) act();
      return result;
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    } finally {
      client.release();
    }
  }

  /** Whether a transaction is open that will call this. */
  afterCommit(act: () => void): boolean {
    return this.open.getStore()?.afterCommit.push(act) !== undefined;
  }

  query(text: string, values: unknown[]): Promise<QueryResult> {
    return (this.open.getStore()?.client ?? this.pool).query(text, values);
  }
}

export function Transactional(): MethodDecorator {
  return (_target, _name, descriptor: PropertyDescriptor) => {
    const method = descriptor.value as (...args: unknown[]) => Promise<unknown>;
    descriptor.value = function (this: { transactions: Transactions }, ...args: unknown[]) {
      return this.transactions.run(() => method.apply(this, args));
    };
  };
}
