import type { LockBackend, LockState, NameRequest, StartRequest } from '../../../contracts/lock-backend.js';
import { trueOrFalse, wholeNumber } from '../../../options/checks.js';
import { lockOption } from '../../../options/option-checks.js';
import { OptionTable, settingOf } from '../../../options/option-table.js';
import { SessionLockBackend } from '../../sessions/session-lock-backend.js';
import { SessionLocks } from '../../sessions/session-locks.js';
import type { StoreSession } from '../../sessions/store-session.js';
import { Migration } from '../connection/migration.js';
import {
  isPool,
  optionsOf,
  requirePostgresConnection,
  type PostgresConnection,
} from '../connection/postgres-connection.js';
import { PostgresLink } from '../connection/postgres-link.js';
import { schemaName } from '../connection/schema-name.js';
import { checkAdvisory } from './advisory-check.js';
import { advisoryKey } from './advisory-key.js';
import { AdvisorySession } from './advisory-session.js';
import { advisoryStatements, sequenceSql, type AdvisoryStatements } from './advisory-sequence.js';
import { refuseSharedSessions } from './pooler-check.js';

/** The options of `advisory()` beside the connection. */
export interface AdvisoryOptions {
  /**
   * How many connections the backend opens for its locks; it opens each when a lock needs it. Beside them it uses one
   * that tells who has a lock: of the pool, where it is given a pool. @default 2
   */
  sessions?: number;
  /** The schema of the sequence of fencing tokens. @default 'nest_redis_lock' */
  schema?: string;
  /** Whether the backend creates the sequence when it finds it missing. @default true */
  migrate?: boolean;
}

interface AdvisorySettings {
  readonly sessions: number;
  readonly schema: string;
  readonly migrate: boolean;
}

const setting = settingOf<AdvisorySettings>();

const OPTIONS = new OptionTable<AdvisoryOptions, AdvisorySettings>(
  lockOption,
  'option of advisory()',
  '',
  { sessions: 2, schema: 'nest_redis_lock', migrate: true },
  {
    sessions: setting('sessions', wholeNumber),
    schema: setting('schema', schemaName),
    migrate: setting('migrate', trueOrFalse),
  },
);

/**
 * Advisory locks of PostgreSQL: they end with the session that took them, at once when its process dies, and need no
 * table. The sessions are connections of the backend's own, also where a pool is passed in.
 */
export function advisory(connection: PostgresConnection, options: AdvisoryOptions = {}): LockBackend {
  requirePostgresConnection('connection', connection);
  return new AdvisoryBackend(
    connection,
    OPTIONS.settings(lockOption.object('options', options, 'an object of options')),
  );
}

class AdvisoryBackend extends SessionLockBackend implements LockBackend {
  readonly name = 'postgres-advisory';
  private readonly link: PostgresLink;
  protected readonly locks: SessionLocks;
  private readonly migration: Migration;
  private readonly statements: AdvisoryStatements;
  private prepared: Promise<void> | undefined;

  constructor(
    connection: PostgresConnection,
    private readonly settings: AdvisorySettings,
  ) {
    super();
    const { sessions, schema, migrate } = settings;
    // One connection beside the sessions tells who has a lock.
    this.link = new PostgresLink(isPool(connection) ? connection : { ...optionsOf(connection), max: 1 });
    this.statements = advisoryStatements(schema);
    this.migration = new Migration(this.link, { schema, sql: sequenceSql(schema), allowed: migrate });
    const open = (ended: (why: Error) => void) => this.openSession(ended);
    this.locks = new SessionLocks({ open }, advisoryKey, sessions);
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    await this.prepare();
    const { rows } = await this.link.query(this.statements.holder, [advisoryKey(request)]);
    const [row] = rows;
    if (!row) return null;
    const [pid, ticket, unissued] = row;
    return {
      // Who took the lock without this library is known by the session alone.
      owner: typeof ticket === 'string' ? ticket : `pid ${Number(pid)}`,
      ttl: Infinity,
      fencingToken: unissued === null ? null : Number(unissued) - 1,
      waiting: 0,
    };
  }

  async start(request: StartRequest): Promise<void> {
    this.link.reporters.add(request);
    await this.prepare();
  }

  diagnose(error?: unknown): Error {
    return this.link.diagnose(error);
  }

  async ping(): Promise<void> {
    await this.link.run('SELECT 1');
  }

  async close(): Promise<void> {
    await this.locks.close();
    await this.link.close();
  }

  private async openSession(ended: (why: Error) => void): Promise<StoreSession> {
    await this.prepare();
    return AdvisorySession.open(this.link, this.statements, ended);
  }

  /** Refuses what cannot work, and creates the sequence; again at the next use if that fails. */
  private prepare(): Promise<void> {
    this.prepared ??= (async () => {
      await refuseSharedSessions(this.link);
      await checkAdvisory(this.migration, this.link.server, this.settings.schema);
    })();
    this.prepared.catch(() => (this.prepared = undefined));
    return this.prepared;
  }
}
