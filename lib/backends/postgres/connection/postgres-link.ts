import { createHash } from 'node:crypto';
import type { EventEmitter } from 'node:events';
import { Socket } from 'node:net';
import pg from 'pg';
import type { PoolClient, Pool, PoolConfig, QueryArrayConfig, QueryArrayResult } from 'pg';
import { BackendRefusal } from '../../../contracts/store.js';
import { Timeouts } from '../../../timing/clock.js';
import { codeOf, failureOf } from '../../failures.js';
import { ConnectionWatch, Listeners } from '../../listeners.js';
import { PostgresFailure, REMEDIES, isPool, optionsOf, type PostgresConnection } from './postgres-connection.js';

/** A row: the values of its columns. */
export type Row = readonly unknown[];

/** One SQL statement. Connections prepare it under its name, once each. */
export interface Statement {
  readonly name: string;
  readonly text: string;
}

/** What a statement answered. */
export interface Reply {
  readonly rows: readonly Row[];
  readonly count: number;
}

/** How long (ms) a connection of our own may take to open, and a statement on it to be answered. */
const PATIENCE = 5_000;
/** How statements ask for their values: as the text that the server sent, whatever the parsers of a pool make of it. */
export const AS_TEXT = { getTypeParser: () => (text: string) => text };
/** What a pooler answers to prepared statements that it lets go to different connections of the server. */
export const NOT_PREPARED: ReadonlySet<string> = new Set(['26000', '42P05']);

/**
 * A pool of the application, which stays open, or one of our own, which is closed. While all connections of the
 * application's pool are in use, statements take one spare connection of our own: code that holds a connection of the
 * pool may wait for a lock, and a lock must be renewed while a transaction runs.
 */
export class PostgresLink {
  /** The server as messages name it. */
  readonly server: string;
  private readonly pool: Pool;
  private readonly own: boolean;
  readonly options: PoolConfig;
  private readonly kept: KeptConnection | undefined;
  /** How long (ms) a statement on a connection of our own may take. */
  private readonly patience: number;
  private spare: Pool | undefined;
  private closed: Promise<void> | undefined;
  /** Whether statements are prepared; not behind a pooler that shares connections between transactions. */
  private prepares = true;
  readonly listeners = new Listeners();
  /** What happens to the connections of the pools; the owners of others report those. */
  readonly watch = new ConnectionWatch(this.listeners.connected);

  constructor(connection: PostgresConnection) {
    this.options = { fallback_application_name: 'nest-redis-lock', ...optionsOf(connection) };
    this.server = serverOf(this.options);
    this.own = !isPool(connection);
    this.pool = isPool(connection) ? connection : ownPool(this.options);
    this.watch.watch(this.pool, 'connect');
    this.patience = Number(this.options.query_timeout) || PATIENCE;
    if (this.own && mayKeepOne(this.pool)) this.kept = new KeptConnection(this.pool, this.watch, this.patience);
  }

  query(statement: Statement, values: readonly unknown[]): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.ask(statement, values, resolve, reject);
    });
  }

  /** As `query`, with callbacks: every lock takes this path. Calls one of them, never before it returns. */
  ask(
    statement: Statement,
    values: readonly unknown[],
    answered: (reply: Reply) => void,
    failed: (error: unknown) => void,
  ): void {
    if (this.closed) {
      process.nextTick(failed, new PostgresFailure(`${this.server}: the backend is closed`));
      return;
    }
    const { prepares } = this;
    const { text, name } = statement;
    const query: QueryArrayConfig = { text, values: values as unknown[], rowMode: 'array', types: AS_TEXT };
    if (prepares) query.name = name;
    const done: Done = (error, result) => {
      // Such a statement was refused before it ran.
      if (error && prepares && NOT_PREPARED.has(codeOf(error) ?? '')) {
        this.prepares = false;
        return this.ask(statement, values, answered, failed);
      }
      if (error) return failed(error);
      try {
        return answered({ rows: result.rows, count: result.rowCount ?? 0 });
      } catch (unreadable) {
        return failed(unreadable);
      }
    };
    if (this.kept?.send(query, done)) return;
    this.send(query, done);
  }

  /** Runs one statement or several, without values. */
  run(text: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.send({ text, rowMode: 'array' }, (error) => (error ? reject(error) : resolve()));
    });
  }

  /** Another connection to the same server, not connected yet. Its user closes it. */
  connection(options: PoolConfig = this.options): pg.Client {
    const limits = { connectionTimeoutMillis: PATIENCE, query_timeout: PATIENCE };
    const client = new pg.Client({ ...limits, keepAlive: true, ...options });
    // A connection that breaks while nobody listens must not end the process.
    client.on('error', () => {});
    return client;
  }

  /** Says why a call failed with `error`, or got no answer. */
  diagnose(error?: unknown): Error {
    if (error !== undefined) return failureOf(this.server, error, REMEDIES, PostgresFailure);
    const { totalCount, waitingCount } = this.pool;
    const why =
      waitingCount > 0
        ? `all ${totalCount} connections of its pool are in use, and ${waitingCount} calls wait for one: raise its "max"`
        : 'does not answer; is it busy or paused, or is the row of the lock locked by a transaction?';
    return new PostgresFailure(`${this.server}: ${why}`);
  }

  close(): Promise<void> {
    return (this.closed ??= this.end());
  }

  private async end(): Promise<void> {
    this.kept?.close();
    this.watch.close();
    await Promise.all([this.own ? this.pool.end() : undefined, this.spare?.end()]);
  }

  private send(query: QueryArrayConfig, done: Done): void {
    const { source, server } = this;
    if (source === this.pool && !this.own) queryOutsideTransactions(source, server, this.limited(query), done);
    else source.query<unknown[]>(this.limited(query), done);
  }

  /** The query with a time limit: after it the pool, also that of the application, closes the connection. */
  private limited<Query extends object>(query: Query): Query {
    const limit = { query_timeout: this.patience };
    return { ...query, ...limit };
  }

  /** The pool, or the spare connection while all connections of the pool are in use, and once the pool has ended. */
  private get source(): Pool {
    const { pool } = this;
    if (this.own) return pool;
    const free = pool.idleCount + pool.options.max - pool.totalCount - pool.waitingCount;
    const ends = pool.ending || pool.ended;
    return free > 0 && !ends ? pool : (this.spare ??= this.openSpare());
  }

  private openSpare(): Pool {
    const spare = ownPool({ ...this.options, max: 1 });
    this.watch.watch(spare, 'connect');
    return spare;
  }
}

/**
 * Names a statement by what it does and by a digest of its text. Behind a pooler, one connection of the server serves
 * several versions of the package, and must never run the statement that another version prepared under the same name.
 * PostgreSQL reads 63 characters of a name.
 */
export function statementOf(does: string, text: string): Statement {
  const digest = createHash('sha256').update(text).digest('hex').slice(0, 16);
  return { name: `nest_redis_lock.${does}_${digest}`, text };
}

/** How a statement ended: with an error, or with what the server answered. */
type Done = (error: Error | null | undefined, result: QueryArrayResult<unknown[]>) => void;

/** After this time (ms) without a statement the connection goes back to the pool. */
const IDLE = 10_000;

/**
 * One connection of a pool that stays checked out from one statement to the next: to check it out and in again costs as
 * much as half of a short statement. It carries one statement at a time, and never keeps the process alive.
 */
class KeptConnection {
  private client: PoolClient | undefined;
  private opening = false;
  private busy = false;
  private usedAt = 0;
  private closed = false;
  private readonly timeouts = new Timeouts();

  constructor(
    private readonly pool: Pool,
    private readonly watch: ConnectionWatch,
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
    const expiry = this.timeouts.start(this.patience, {
      expire: () => {
        this.watch.forget(client);
        stream.destroy();
      },
    });
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

/** Whether another connection remains, and the options do not ask to replace connections from time to time. */
function mayKeepOne({ options }: Pool): boolean {
  return options.max > 1 && options.maxUses === Infinity && options.maxLifetimeSeconds === 0;
}

function ownPool(options: PoolConfig): Pool {
  // A time limit of the connection would start a timer for each statement, also on the one that is kept.
  const own = { ...options, query_timeout: 0, allowExitOnIdle: true };
  const pool = new pg.Pool({ keepAlive: true, connectionTimeoutMillis: PATIENCE, ...own });
  // The pool drops a connection that breaks; the next statement opens another.
  pool.on('error', () => {});
  return pool;
}

/** The server as messages name it, without a password. */
function serverOf(options: PoolConfig): string {
  // A client that is never connected reads the options, the URL and the environment as every other does.
  const { host, port, database } = new pg.Client(options);
  return `PostgreSQL at ${host.startsWith('/') ? host : `${host}:${port}`} (database "${database}")`;
}

/**
 * Sends a statement over the application's pool. A connection may have come back to it while its transaction was open:
 * what the statement did would be undone with that transaction. Such a connection is closed, and the call fails.
 */
function queryOutsideTransactions(pool: Pool, server: string, query: QueryArrayConfig, done: Done): void {
  pool.connect((error, client, release) => {
    if (!client) return done(error, NOTHING);
    const { connection } = client as { connection?: EventEmitter };
    if (!connection) {
      release();
      return done(new BackendRefusal(`${server}: ${UNTOLD}`), NOTHING);
    }
    let status = '';
    let ended = false;
    const note = (message: { readonly status: string }) => (status = message.status);
    const end: Done = (failure, result) => {
      if (ended) return;
      ended = true;
      client.off('error', onError);
      connection.off('readyForQuery', note);
      const refusal = failure ?? (status === OUTSIDE ? undefined : inTransaction());
      release(refusal);
      done(refusal, result);
    };
    const onError = (failure: Error) => end(failure, NOTHING);
    client.once('error', onError);
    // The client calls back in its own listener, which would run first. Statements before this one may end meanwhile.
    connection.prependListener('readyForQuery', note);
    client.query<unknown[]>(query, end);
  });
}

const UNTOLD =
  'the clients of the pool do not tell whether they are inside a transaction, as those of pg.native, whose rollback ' +
  'would free locks: give a Pool of pg, or options or a URL';

/** What the server says of a connection without a transaction. */
const OUTSIDE = 'I';
const NOTHING: QueryArrayResult<unknown[]> = { command: '', rowCount: 0, oid: 0, fields: [], rows: [] };

function inTransaction(): Error {
  return new Error(
    'a connection of the pool came back while its transaction was open; COMMIT or ROLLBACK before "release()"',
  );
}
