import { randomUUID } from 'node:crypto';
import { Socket } from 'node:net';
import pg from 'pg';
import type { Client, Notification } from 'pg';
import type { TokenRange } from '../../../contracts/lock-backend.js';
import { BackendRefusal } from '../../../contracts/store.js';
import type { StoreSession } from '../../sessions/session-slot.js';
import { codeOf } from '../../failures.js';
import { arrivesAfter, PROBE_PATIENCE } from '../connection/listening-connection.js';
import { PostgresFailure } from '../connection/postgres-connection.js';
import { AS_TEXT, NOT_PREPARED, type PostgresLink, type Row, type Statement } from '../connection/postgres-link.js';
import { lockKey } from '../lease-table/lease-table.js';
import { TOKENS, type AdvisoryStatements } from './advisory-sequence.js';

/** How long (ms) a session may take to answer. One that does not is ended: its connection may be half open. */
export const PATIENCE = 3_000;
/** How long (ms) the server may take to end a session that is closed; then its connection is closed here. */
const FAREWELL = 1_000;
/** How many values of the sequence are drawn at most to reach a token, before it is raised. */
const MOST_DRAWN = 4;
/** Errors with which the server ends the session, or after which its state is unknown. */
const ENDS_SESSION = /^(08|57P|XX)/;

/** A table or a schema that does not exist. */
const MISSING = new Set(['42P01', '3F000']);

/** What the sessions of a backend share. */
interface AdvisoryUse {
  readonly statements: AdvisoryStatements;
  /** Makes the sequence and the table where they are missing. */
  make(): Promise<void>;
}

/** A connection of our own that has advisory locks. */
export class AdvisorySession implements StoreSession {
  private closed = false;
  /** How many statements are under way: an idle session does not keep the process alive. */
  private asked = 0;

  private constructor(
    private readonly link: PostgresLink,
    private readonly client: Client,
    /** Kept in the session itself: a pooler may lend one session to two connections, and its pid would fit both. */
    private readonly mark: string,
    private readonly use: AdvisoryUse,
  ) {}

  static async open(link: PostgresLink, use: AdvisoryUse, ended: (why: Error) => void): Promise<AdvisorySession> {
    const client = link.connection({ ...link.options, query_timeout: PATIENCE });
    try {
      const mark = randomUUID();
      const session = new AdvisorySession(link, client, mark, use);
      await client.connect();
      const { rowCount } = await client.query({ text: use.statements.claim.text, values: [mark] });
      if (rowCount !== 1) throw session.refusal();
      await client.query(`${SETTINGS}; LISTEN "${mark}"`);
      await session.requireToStay();
      const tidyUp = `UNLISTEN "${mark}"; ${use.statements.forget.text}`;
      await session.makingWhatIsMissing(() => client.query(tidyUp));
      // A crash or a failover may have set the sequence back; it has also ended each session that drew from it before.
      await session.makingWhatIsMissing(() => session.ask(use.statements.raise, [0]));
      let why = new Error('Connection terminated');
      client.on('error', (error) => (why = error));
      client.on('end', () => session.closed || ended(link.diagnose(why)));
      session.socket?.unref();
      return session;
    } catch (error) {
      client.connection.stream.destroy();
      throw error;
    }
  }

  async take(key: string, ticket: string): Promise<TokenRange | null> {
    const [, token] = await this.makingWhatIsMissing(() => this.takeOrUnlock(key, ticket));
    return token === null ? null : { first: Number(token), count: TOKENS };
  }

  async free(key: string): Promise<void> {
    try {
      await this.ask(this.use.statements.free, [key, this.mark]);
    } catch (error) {
      if (!isOfStatement(error)) throw error;
      await this.unlock(key);
    }
  }

  async mint(least: number, key: string): Promise<TokenRange> {
    for (let drawn = 1; ; drawn++) {
      const [, token] = await this.makingWhatIsMissing(() => this.ask(this.use.statements.mint, [key]));
      if (Number(token) >= least) return { first: Number(token), count: TOKENS };
      if (drawn % MOST_DRAWN === 0) await this.ask(this.use.statements.raise, [least]);
    }
  }

  async check(): Promise<void> {
    await this.ask(this.use.statements.check, []);
  }

  async close(): Promise<void> {
    this.closed = true;
    this.socket?.ref();
    const timer = setTimeout(() => this.end(), FAREWELL);
    await this.client.end().catch(() => {});
    clearTimeout(timer);
  }

  private async takeOrUnlock(key: string, ticket: string): Promise<Row> {
    try {
      return await this.ask(this.use.statements.take, [key, ticket, this.mark]);
    } catch (error) {
      // A session lock stays when the statement that took it fails afterwards.
      if (isOfStatement(error)) await this.unlock(key);
      throw error;
    }
  }

  /** Asks once more where the sequence, the table or their schema was missing, which it makes before. */
  private async makingWhatIsMissing<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
    try {
      return await ask();
    } catch (error) {
      if (!MISSING.has(codeOf(error) ?? '')) throw error;
      await this.use.make();
      return ask();
    }
  }

  /**
   * Sends a message to this session from another one, while this one asks nothing. A pooler that has lent the session
   * to somebody else meanwhile cannot pass it on, and a look for such a pooler may miss it on a busy machine.
   */
  private async requireToStay(): Promise<void> {
    const { client, link, mark } = this;
    let onMessage: ((message: Notification) => void) | undefined;
    const arrives = new Promise<void>((resolve) => {
      // A session that a pooler hands on may get messages for its former user.
      client.on('notification', (onMessage = ({ channel }) => channel === mark && resolve()));
      // The next statement says why the session ended.
      client.once('end', resolve);
    });
    try {
      const reached = await arrivesAfter(link, mark, arrives);
      if (!reached) throw new PostgresFailure(`${link.server}: ${NO_MESSAGE}`);
    } finally {
      if (onMessage) client.off('notification', onMessage);
    }
  }

  private refusal(): BackendRefusal {
    return new BackendRefusal(`${this.link.server}: ${THROUGH_POOLER}`);
  }

  /** Ends the session where it cannot tell whether the lock is free. */
  private async unlock(key: string): Promise<void> {
    try {
      await this.ask(this.use.statements.unlock, [key, this.mark]);
    } catch (error) {
      this.end();
      throw error;
    }
  }

  /** The first row of the answer. After an error of the statement alone the session keeps its locks. */
  private async ask(statement: Statement, values: readonly unknown[]): Promise<Row> {
    let row: Row | undefined;
    if (this.asked++ === 0) this.socket?.ref();
    try {
      const { rows } = await this.client.query<Row[]>({
        ...statement,
        values: [...values],
        rowMode: 'array',
        types: AS_TEXT,
      });
      row = rows[0];
    } catch (error) {
      // Another session of the server than the one that prepared the statement.
      const lent = NOT_PREPARED.has(codeOf(error) ?? '');
      if (lent || !isOfStatement(error)) this.end();
      throw lent ? this.refusal() : error;
    } finally {
      if (--this.asked === 0 && !this.closed) this.socket?.unref();
    }
    if (row && row[0] === this.mark) return row;
    this.end();
    throw this.refusal();
  }

  private get socket(): Socket | undefined {
    const { stream } = this.client.connection;
    return stream instanceof Socket ? stream : undefined;
  }

  /** Frees all of its locks: the server ends a session with its connection. */
  private end(): void {
    this.client.connection.stream.destroy();
  }
}

/**
 * The key of an advisory lock: the first 64 bits of the SHA-256, as a signed number. Two names with one key would
 * exclude each other: with a million names in use, one chance in 37 million.
 */
export function advisoryKey(prefix: string | undefined, name: string): string {
  const digits = lockKey(prefix, name).slice(2, 18);
  return BigInt.asIntN(64, BigInt(`0x${digits}`)).toString();
}

export const THROUGH_POOLER =
  'a pooler lets one connection run on several sessions of the server, or hands on a session that it did not clear ' +
  '(DISCARD ALL), so that advisory locks are lost: give a direct connection or a pooler in session mode, or use ' +
  'leaseTable()';

const NO_MESSAGE =
  `a message to a session did not arrive within ${PROBE_PATIENCE} ms, as behind a pooler in transaction mode, where advisory ` +
  'locks are lost: give a direct connection or a pooler in session mode, or use leaseTable()';

/** Whether the server refused one statement, and the session lives. */
function isOfStatement(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code !== undefined && !ENDS_SESSION.test(error.code);
}

/**
 * The settings of a session, in place of those of its user and database. The keep-alives make the server notice a
 * process whose machine is gone, after about 25 s: only then it frees the locks. The time limits, in ms, fail a
 * statement that waits for a table before the session counts as dead, and end no idle session. Conflicting writes must
 * wait for each other, and not fail as they do above "read committed". What the sequence has drawn is on the disk
 * before its tokens are used, which the server asks for once in 32 draws.
 */
const VALUES: Readonly<Record<string, string>> = {
  tcp_keepalives_idle: '10',
  tcp_keepalives_interval: '5',
  tcp_keepalives_count: '3',
  default_transaction_isolation: 'read committed',
  lock_timeout: '1000',
  statement_timeout: '2000',
  transaction_timeout: '0',
  idle_session_timeout: '0',
  idle_in_transaction_session_timeout: '0',
  synchronous_commit: 'local',
};

/** Sets those that the version of the server knows. Commits that wait for a standby go on doing so. */
const SETTINGS = `SELECT set_config(name, value, false) FROM pg_settings JOIN (VALUES ${Object.entries(VALUES)
  .map(([name, value]) => `('${name}', '${value}')`)
  .join(', ')}) AS wanted (name, value) USING (name) WHERE name <> 'synchronous_commit' OR setting = 'off'`;
