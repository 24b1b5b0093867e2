import type {
  AcquireAnswer,
  AcquireRequest,
  LockBackend,
  LockState,
  NameRequest,
  StartRequest,
} from '../../../contracts/lock-backend.js';
import { SessionLockBackend } from '../../sessions/session-lock-backend.js';
import { SessionLocks } from '../../sessions/session-locks.js';
import type { MysqlLink } from '../connection/mysql-link.js';
import { LockTable, type LockTableSettings } from '../rows/lock-table.js';
import { getLockNameOf } from '../rows/row-id.js';
import { GetLockSession } from './get-lock-session.js';
import { TokenStatements } from './token-statements.js';

export interface GetLockSettings extends LockTableSettings {
  readonly sessions: number;
}

/** A name that does not occur: `start` takes it to see whether the user may do all that locks need. */
const TRIAL = 'nest-redis-lock:start';

/** Locks of `GET_LOCK`: they end with the session that took them. */
export class GetLockBackend extends SessionLockBackend implements LockBackend {
  readonly name = 'mysql-get-lock';
  protected readonly locks: SessionLocks;
  private readonly tokens: LockTable<TokenStatements>;
  private database: string | undefined;

  constructor(
    private readonly link: MysqlLink,
    private readonly settings: GetLockSettings,
  ) {
    super();
    const { table, sessions } = settings;
    this.tokens = new LockTable(link, new TokenStatements(table), settings);
    const open = (ended: (why: Error) => void) =>
      GetLockSession.open(link.options, this.tokens, (why) => ended(link.diagnose(why)));
    this.locks = new SessionLocks({ open }, (request) => this.keyOf(request), sessions);
  }

  override async acquire(request: AcquireRequest): Promise<AcquireAnswer> {
    this.tokens.startSweeping();
    return super.acquire(request);
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    const key = this.keyOf(request);
    const [used] = await this.link.rows<{ connection: number | null }>(`SELECT IS_USED_LOCK('${key}') AS connection`);
    if (!used || used.connection === null) return null;
    const [row] = await this.tokens.rows<{ owner: Buffer; token: number }>(this.tokens.statements.last(key));
    // The row is written after the lock was taken.
    const owner = this.locks.ownerHere(request) ?? (row?.owner.toString() || `connection ${used.connection}`);
    return { owner, ttl: Infinity, fencingToken: row?.token ?? null, waiting: 0 };
  }

  async start(request: StartRequest): Promise<void> {
    const trial = { names: [TRIAL], ticket: `${TRIAL}:${process.pid}` };
    try {
      const { status } = await this.acquire({ ...trial, ttl: 1_000 });
      if (status === 'granted') await this.release(trial);
      await this.tokens.start(request, this.keyOf({ name: TRIAL }));
    } catch (error) {
      throw this.diagnose(error);
    }
  }

  async ping(): Promise<void> {
    try {
      await this.link.rows('SELECT 1');
    } catch (error) {
      throw this.diagnose(error);
    }
  }

  diagnose(error?: unknown): Error | undefined {
    return this.link.diagnose(error);
  }

  async close(): Promise<void> {
    this.tokens.stopSweeping();
    await this.locks.close();
    await this.link.close();
  }

  private keyOf({ prefix, name }: NameRequest): string {
    this.database ??= databaseOf(this.settings.table) ?? this.link.database ?? '';
    // Servers that ignore the case of a database's name may answer to each way of writing it.
    return getLockNameOf(this.database.toLowerCase(), prefix, name);
  }
}

/** The database of a quoted `database.table`. */
function databaseOf(table: string): string | undefined {
  return /^`(.+)`\./.exec(table)?.[1];
}
