import { Socket } from 'node:net';
import type { Pool, PoolClient, QueryArrayConfig, QueryArrayResult } from 'pg';
import type { Timeouts } from '../../../timing/timeouts.js';

/** After this time (ms) without a statement the connection goes back to the pool. */
const IDLE = 10_000;

/** A row: the values of its columns. */
export type Row = readonly unknown[];

/** How a statement ended: with an error, or with what the server answered. */
export type Done = (error: Error | null | undefined, result: QueryArrayResult<unknown[]>) => void;

/**
 * One connection of a pool that stays checked out from one statement to the next: to check it out and in again costs as
 * much as half of a short statement. It carries one statement at a time, and never keeps the process alive.
 */
export class KeptConnection {
  private client: PoolClient | undefined;
  private opening = false;
  private busy = false;
  private usedAt = 0;
  private closed = false;

  constructor(
    private readonly pool: Pool,
    private readonly timeouts: Timeouts,
    /** How long (ms) a statement may take: the connection of one that does not end is closed. */
    private readonly patience: number,
  ) {}

  /** Sends the statement; `false`, and sends nothing, while the connection is in use or is not open yet. */
  send(query: QueryArrayConfig, done: Done): boolean {
    const { client } = this;
    if (!client) this.open();
    if (!client || this.busy) return false;
    this.busy = true;
    const { stream } = client.connection;
    if (stream instanceof Socket) stream.ref();
    const expiry = this.timeouts.start(this.patience, { expire: () => stream.destroy() });
    client.query<unknown[]>(query, (error, result) => {
      expiry.leave();
      if (stream instanceof Socket) stream.unref();
      if (this.client === client) this.ended(client, error);
      done(error, result);
    });
    return true;
  }

  /** Gives the connection back once its statement has ended. */
  close(): void {
    this.closed = true;
    if (this.client && !this.busy) this.giveBack(this.client);
  }

  private open(): void {
    if (this.opening || this.closed) return;
    this.opening = true;
    this.pool.connect((error, client) => {
      this.opening = false;
      // The statement that goes to the pool instead reports why there is no connection.
      if (error || !client) return;
      if (this.closed) return client.release();
      this.client = client;
      this.usedAt = performance.now();
      client.on('error', this.broken);
      const { stream } = client.connection;
      if (stream instanceof Socket) stream.unref();
      this.giveBackWhenIdle(client, IDLE);
    });
  }

  private readonly broken = (error: Error) => {
    if (this.client) this.giveBack(this.client, error);
  };

  /** A server that refuses a statement may refuse each one from now on: a standby, once it is demoted. */
  private ended(client: PoolClient, error: Error | null | undefined): void {
    this.busy = false;
    this.usedAt = performance.now();
    if (this.closed || error) this.giveBack(client, error ?? undefined);
  }

  private giveBackWhenIdle(client: PoolClient, delay: number): void {
    setTimeout(() => {
      if (this.client !== client) return;
      const left = this.usedAt + IDLE - performance.now();
      if (this.busy || left > 0) this.giveBackWhenIdle(client, Math.max(left, 1_000));
      else this.giveBack(client);
    }, delay).unref();
  }

  /** The pool closes a connection that it gets with an error. */
  private giveBack(client: PoolClient, error?: Error): void {
    this.client = undefined;
    this.busy = false;
    client.off('error', this.broken);
    client.release(error);
  }
}
