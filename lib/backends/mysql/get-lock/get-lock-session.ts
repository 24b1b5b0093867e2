import type { Connection, PoolOptions, ResultSetHeader } from 'mysql2';
import type { TokenRange } from '../../../contracts/lock-backend.js';
import { Timeouts } from '../../../timing/timeouts.js';
import type { StoreSession } from '../../sessions/store-session.js';
import { openConnection } from '../connection/given-connection.js';
import type { LockTable } from '../rows/lock-table.js';
import { insertIdOf } from '../rows/row-statements.js';
import { TOKENS } from '../rows/sql.js';
import type { TokenStatements } from './token-statements.js';

/** How long (ms) a session may take to answer. One that does not is ended: its connection may be half open. */
const PATIENCE = 3_000;
/** Seconds after which the server ends the session of a process that stands still; each lease ends before. */
const WAIT_TIMEOUT = 30;

const SETTINGS = `SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, wait_timeout = ${WAIT_TIMEOUT}`;

export const THROUGH_POOLER =
  'a proxy lets one connection run on several sessions of the server, in which locks are lost: give the address of ' +
  'the server itself, or use leaseTable()';

interface Answer {
  readonly connection: number;
  /** 1 where the function has done it. */
  readonly done: number | null;
}

/** A connection of our own that has locks of `GET_LOCK`. */
export class GetLockSession implements StoreSession {
  private readonly timeouts = new Timeouts();
  private id = 0;
  private over = false;

  private constructor(
    private readonly connection: Connection,
    private readonly tokens: LockTable<TokenStatements>,
    private readonly ended: (why: Error) => void,
  ) {
    connection.on('error', (error: Error) => this.end(error));
    connection.on('end', () => this.end(new Error('the server closed the connection')));
  }

  static async open(
    options: PoolOptions,
    tokens: LockTable<TokenStatements>,
    ended: (why: Error) => void,
  ): Promise<GetLockSession> {
    const session = new GetLockSession(openConnection(options), tokens, ended);
    try {
      await session.send(SETTINGS);
      session.id = (await session.ask('1')).connection;
      return session;
    } catch (error) {
      await session.close();
      throw error;
    }
  }

  async take(key: string, ticket: string): Promise<TokenRange | null> {
    try {
      // A time limit of 0: the session never waits, so that no other name waits for it.
      const { done } = await this.ask(`GET_LOCK('${key}', 0)`);
      if (done === 0) return null;
      if (done === null) throw new Error('GET_LOCK answered NULL: see the log of the server');
      return await this.issue(this.tokens.statements.grant(key, ticket));
    } catch (error) {
      // An interrupted statement may have taken the lock.
      await this.free(key).catch(() => {});
      throw error;
    }
  }

  /** Ends the session where it fails: the lock would stay with a session that nobody asks to free it again. */
  async free(key: string): Promise<void> {
    try {
      await this.ask(`RELEASE_LOCK('${key}')`);
    } catch (error) {
      this.end(error as Error);
      throw error;
    }
  }

  mint(least: number, key: string): Promise<TokenRange> {
    return this.issue(this.tokens.statements.issue(key, least));
  }

  async check(): Promise<void> {
    await this.ask('1');
  }

  async close(): Promise<void> {
    this.over = true;
    this.cutOff();
  }

  private async issue(sql: string): Promise<TokenRange> {
    const answer = await this.tokens.change(sql, (each) => this.send<ResultSetHeader>(each));
    return { first: insertIdOf(answer), count: TOKENS };
  }

  /** Evaluates an expression in the session, and ends it where a proxy has answered from another one. */
  private async ask(expression: string): Promise<Answer> {
    const [answer] = await this.send<[Answer]>(`SELECT ${expression} AS done, CONNECTION_ID() AS connection`);
    if (this.id === 0 || answer.connection === this.id) return answer;
    const error = new Error(THROUGH_POOLER);
    this.end(error);
    throw error;
  }

  private send<T>(sql: string): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const fail = (error: Error) => {
        // The server may have taken the lock all the same: the end of the session frees what it has.
        if ((error as { fatal?: boolean }).fatal ?? false) this.end(error);
        reject(error);
      };
      const expiry = this.timeouts.start(PATIENCE, {
        expire: () =>
          fail(Object.assign(new Error(`the server did not answer within ${PATIENCE} ms`), { fatal: true })),
      });
      this.stream?.ref();
      this.connection.query({ sql, typeCast: true, rowsAsArray: false, nestTables: false }, (error, answer) => {
        if (!expiry.leave()) return;
        this.stream?.unref();
        if (error) fail(error);
        else resolve(answer as T);
      });
    });
  }

  private end(why: Error): void {
    if (this.over) return;
    this.over = true;
    this.cutOff();
    this.ended(why);
  }

  /** The server frees the locks as soon as it sees the connection closed. */
  private cutOff(): void {
    this.connection.destroy();
    this.stream?.destroy();
  }

  /** An idle session does not keep the process alive. */
  private get stream(): { ref(): void; unref(): void; destroy(): void } | undefined {
    return (this.connection as { stream?: { ref(): void; unref(): void; destroy(): void } }).stream;
  }
}
