import type { PoolConnection, PoolOptions, ResultSetHeader, RowDataPacket } from 'mysql2';
import { Timeouts } from '../../../timing/timeouts.js';
import { Reporters } from '../../reporting/reporters.js';
import { codeOf, diagnose, MysqlFailure } from './diagnosis.js';
import { databaseOf, readConnection, serverOf } from './given-connection.js';
import { LentConnections } from './lent-connections.js';
import { cutOff } from './own-pool.js';
import { PreparedStatements, type Statement } from './prepared-statements.js';

/** A connection that has not answered for this long (ms) is closed: its network may be cut. */
const LONGEST_ANSWER = 10_000;
/** How long (ms) a statement waits for a connection; longer than `connectTimeout` of mysql2, whose error says more. */
const LONGEST_WAIT = 11_000;
/** How often a statement is sent whose transaction the server rolled back to end a deadlock. */
const DEADLOCK_TRIES = 5;
/** Server status: the connection is inside a transaction. */
const IN_TRANSACTION = 1;

/** Options of the application's pool that change how rows are read. */
const ROWS = { typeCast: true, supportBigNumbers: false, rowsAsArray: false, nestTables: false } as const;

/** Sends statements to the server, each on any connection of the pool and in a transaction of its own. */
export class MysqlLink {
  /** How a connection of our own reaches the server. */
  readonly options: PoolOptions;
  readonly reporters = new Reporters();
  private readonly connections: LentConnections;
  private readonly prepared = new PreparedStatements();
  private readonly timeouts = new Timeouts();
  /** How many statements wait for a connection. */
  private waiting = 0;
  private closed = false;

  constructor(connection: unknown) {
    const given = readConnection(connection);
    this.options = given.options;
    this.connections = new LentConnections(given);
  }

  /** The database that the connections begin in. */
  get database(): string | undefined {
    return databaseOf(this.connections.pool);
  }

  /** Runs a statement that changes rows. */
  async change(statement: Statement): Promise<ResultSetHeader> {
    for (let tries = 1; ; tries += 1) {
      try {
        return (await this.send(statement)) as ResultSetHeader;
      } catch (error) {
        if (codeOf(error) !== 'ER_LOCK_DEADLOCK' || tries === DEADLOCK_TRIES) throw error;
      }
    }
  }

  async rows<Row>(sql: string): Promise<readonly Row[]> {
    return (await this.send(sql)) as RowDataPacket[] as Row[];
  }

  /** Says why a call failed with `error`, or got no answer. */
  diagnose(error?: unknown): MysqlFailure {
    const server = serverOf(this.connections.pool);
    if (error !== undefined) return diagnose(server, error);
    const why =
      this.connections.shortage(this.waiting) ??
      'does not answer; is it busy or paused, or is the row of the lock locked by a transaction?';
    return new MysqlFailure(`${server}: ${why}`);
  }

  /** Lets statements under way end, for a moment. */
  close(): Promise<void> {
    this.closed = true;
    return this.connections.close();
  }

  private async send(statement: Statement): Promise<unknown> {
    if (this.closed) throw new Error('The backend is closed: the application has ended');
    return this.ask(await this.connection(), statement);
  }

  /** A connection of the pool. One that comes too late is released: a statement that nobody waits for is not sent. */
  private connection(): Promise<PoolConnection> {
    return new Promise((resolve, reject) => {
      this.waiting += 1;
      const expiry = this.timeouts.start(LONGEST_WAIT, {
        expire: () => {
          this.waiting -= 1;
          reject(new Error(`no connection within ${LONGEST_WAIT} ms`));
        },
      });
      this.connections.lend((error, connection) => {
        if (!expiry.leave()) return connection?.release();
        this.waiting -= 1;
        if (error) reject(error);
        else resolve(connection as PoolConnection);
      });
    });
  }

  private ask(connection: PoolConnection, statement: Statement): Promise<unknown> {
    // On a pool of the application's, prepared statements would outlive the backend.
    const prepared = this.connections.ownOnly && this.prepared.suits(statement) ? statement : undefined;
    return new Promise((resolve, reject) => {
      const expiry = this.timeouts.start(LONGEST_ANSWER, {
        expire: () => {
          cutOff(connection);
          reject(new Error(`the server did not answer within ${LONGEST_ANSWER} ms; the connection was closed`));
        },
      });
      const answered = (failure: Error | null, answer: unknown) => {
        if (!expiry.leave()) return;
        if (failure && prepared && this.prepared.refused(failure, prepared, connection)) {
          resolve(this.ask(connection, prepared.text()));
          return;
        }
        const mixed = failure ? undefined : foreignTransaction(answer);
        if (mixed || isReadOnly(failure)) cutOff(connection);
        else connection.release();
        if (failure ?? mixed) reject(failure ?? mixed);
        else resolve(answer);
      };
      if (prepared) connection.execute(prepared.sql, prepared.values, answered);
      else connection.query({ sql: typeof statement === 'string' ? statement : statement.text(), ...ROWS }, answered);
    });
  }
}

/** A lock that was taken inside a transaction of the application would end with its rollback. */
function foreignTransaction(answer: unknown): Error | undefined {
  const { serverStatus = 0 } = answer as { serverStatus?: number };
  if ((serverStatus & IN_TRANSACTION) === 0) return undefined;
  return new Error(
    'a connection of the pool is inside a transaction; commit before you release a connection, and leave autocommit on',
  );
}

/** Whether the server of the connection has become a replica: the next connection may reach the primary. */
function isReadOnly(error: Error | null): boolean {
  const code = error ? codeOf(error) : undefined;
  return code === 'ER_OPTION_PREVENTS_STATEMENT' || code === 'ER_READ_ONLY_MODE';
}
