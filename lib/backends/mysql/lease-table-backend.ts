import type {
  AcquireAnswer,
  AcquireRequest,
  KeepRequest,
  LabelRequest,
  LockBackend,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
} from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import { lockOption } from '../../options/option-checks.js';
import { BatchStatements } from './batch-statements.js';
import { LeaseReleases, LeaseRenewals } from './lease-releases.js';
import { LeaseTakes, LockedRows } from './lease-takes.js';
import { LockTable, labelIdOf, rowIdOf, TRIAL, tryOut } from './lock-table.js';
import type { MysqlConnection } from './mysql-connection.js';
import { MysqlLink } from './mysql-link.js';
import { type LockTableSettings, type LeaseTableOptions, LEASE_TABLE_OPTIONS } from './mysql-options.js';
import { RowStatements, takenOf, type StateRow } from './row-statements.js';

/**
 * Keeps locks in a table of MySQL or MariaDB: a row for each name, with a lease that ends by the clock of the server.
 *
 * @param connection a pool of the application, which stays open; or what a pool of the backend's own is opened with
 * @throws LockConfigError for a connection or an option that it cannot use
 */
export function leaseTable(connection: MysqlConnection, options: LeaseTableOptions = {}): LockBackend {
  const given = lockOption.object('options', options, 'an object of options of leaseTable()');
  return new LeaseTableBackend(new MysqlLink(connection), LEASE_TABLE_OPTIONS.settings(given));
}

/** How often `forceRelease` tries to free a name whose owner changes meanwhile. */
const FORCED_TRIES = 20;

/** Keeps each lock in a row, whose lease ends by the clock of the server. */
export class LeaseTableBackend implements LockBackend {
  readonly name = 'mysql';
  readonly traits: LockTraits = { lease: 'ttl', fencing: 'strict', leastLease: 1 };
  private readonly table: LockTable<RowStatements>;
  private readonly takes: LeaseTakes;
  private readonly releases: LeaseReleases;
  private readonly renewals: LeaseRenewals;

  constructor(
    private readonly link: MysqlLink,
    settings: LockTableSettings,
  ) {
    this.table = new LockTable(link, new RowStatements(settings.table), settings);
    const statements = new BatchStatements(settings.table);
    const locked = new LockedRows();
    this.takes = new LeaseTakes(this.table, statements, locked);
    this.releases = new LeaseReleases(this.table, statements, locked);
    this.renewals = new LeaseRenewals(link, this.table, statements, locked);
  }

  acquire({ prefix, name, ticket, ttl, leastToken }: AcquireRequest): Promise<AcquireAnswer> {
    this.table.startSweeping();
    const shown = prefix === undefined ? name : `${prefix}:${name}`;
    return this.takes.take({ id: rowIdOf(prefix, name), ticket, name, shown, ttl, leastToken });
  }

  renew(requests: readonly RenewRequest[]): readonly Promise<RenewAnswer>[] {
    return this.renewals.renew(requests);
  }

  release(request: TicketRequest): Promise<ReleaseAnswer> {
    return this.releases.release(request);
  }

  keep(request: KeepRequest): Promise<ReleaseAnswer> {
    return this.releases.keep(request);
  }

  async mint({ prefix, name, ticket, leastToken }: MintRequest): Promise<TokenRange | null> {
    const row = { id: rowIdOf(prefix, name), ticket };
    const minted = takenOf(await this.table.change(this.table.statements.mint(row, leastToken)));
    return 'tokens' in minted ? minted.tokens : null;
  }

  async inspect({ prefix, name }: NameRequest): Promise<LockState | null> {
    const state = await this.stateOf(rowIdOf(prefix, name));
    if (!state) return null;
    const owner = state.owner.toString();
    const label = (await this.stateOf(labelIdOf(prefix, processOf(owner))))?.name;
    const { remaining: ttl, token: fencingToken } = state;
    return { owner, ...(label !== undefined && { label }), ttl, fencingToken, waiting: 0 };
  }

  async label({ prefix, process, label, ttl }: LabelRequest): Promise<void> {
    const id = labelIdOf(prefix, process);
    const { statements } = this.table;
    await this.table.change(ttl === 0 ? statements.dropText(id) : statements.keepText(id, label, ttl));
  }

  async forceRelease({ prefix, name }: NameRequest): Promise<string | null> {
    const id = rowIdOf(prefix, name);
    for (let tries = 0; tries < FORCED_TRIES; tries += 1) {
      const ticket = (await this.stateOf(id))?.owner.toString();
      if (ticket === undefined) return null;
      const { affectedRows } = await this.table.change(this.table.statements.free({ id, ticket }));
      if (affectedRows > 0) return ticket;
    }
    throw new Error(
      `"${name}" had another owner at each of ${FORCED_TRIES} tries to free it: free it again; or a connection of the ` +
        'pool reads old rows inside a transaction: commit before you release a connection',
    );
  }

  whenConnected(listener: () => void): () => void {
    return this.link.watch.whenConnected(listener);
  }

  async start(request: StartRequest): Promise<void> {
    await tryOut(this);
    await this.table.start(request, rowIdOf(undefined, TRIAL));
  }

  async ping(): Promise<void> {
    await this.link.rows('SELECT 1');
  }

  diagnose(error?: unknown): Error | undefined {
    return this.link.diagnose(error);
  }

  close(): Promise<void> {
    this.table.stopSweeping();
    return this.link.close();
  }

  private async stateOf(id: string): Promise<StateRow | undefined> {
    return (await this.table.rows<StateRow>(this.table.statements.state(id)))[0];
  }
}
