import type {
  AcquireAnswer,
  AcquireRequest,
  AcquireSeveralRequest,
  KeepRequest,
  LabelRequest,
  LockBackend,
  LockState,
  LockTraits,
  MintRequest,
  NameRequest,
  Pending,
  ReleaseAnswer,
  RenewAnswer,
  RenewRequest,
  StartRequest,
  TicketRequest,
  TokenRange,
  BeatRequest,
  EnqueueRequest,
  LockQueue,
  QueueAnswer,
  QueueListener,
  RequeueRequest,
} from '../../../contracts/lock-backend.js';
import { BackendRefusal, type Notice } from '../../../contracts/store.js';
import {
  type PostgresConnection,
  requirePostgresConnection,
  PostgresFailure,
} from '../connection/postgres-connection.js';
import { PostgresLink, statementOf, type Row } from '../connection/postgres-link.js';
import { ContendedNames, LeaseChannel, nameInMessages } from './lease-channel.js';
import { LeaseReleases, LeaseRenewals, releaseStatus } from './lease-releases.js';
import { LAST_FUNCTION } from './lease-statements.js';
import { leaseTableSettings, type LeaseTableOptions, type LeaseTableSettings } from './lease-table-options.js';
import { LeaseSweeper, LeaseTable, inOrder, labelPrefix, lockKey } from './lease-table.js';
import { LeaseTakes, granted, queueAnswer } from './lease-takes.js';

/**
 * Locks as rows of a table: each has an owner, the end of its lease by the clock of the server, and a fencing token
 * that rises. A release gives the lock to the next waiter in the same transaction, and sends its process a message.
 *
 * The backend uses a pool that is passed in and never closes it. It opens a connection of its own for messages at the
 * first wait for a busy lock, and one more for statements while all connections of the pool are in use.
 */
export function leaseTable(connection: PostgresConnection, options: LeaseTableOptions = {}): LockBackend {
  requirePostgresConnection('connection', connection);
  return new LeaseTableBackend(connection, leaseTableSettings(options));
}

class LeaseTableBackend implements LockBackend {
  readonly name = 'postgres';
  readonly traits: LockTraits = { lease: 'ttl', fencing: 'strict', leastLease: 1 };
  readonly queue: LeaseTableQueue;
  private readonly link: PostgresLink;
  private readonly table: LeaseTable;
  private readonly releases: LeaseReleases;
  private readonly renewals: LeaseRenewals;
  private readonly channel: LeaseChannel;
  private readonly sweeper: LeaseSweeper;

  constructor(
    connection: PostgresConnection,
    private readonly settings: LeaseTableSettings,
  ) {
    const contended = new ContendedNames();
    this.link = new PostgresLink(connection);
    this.table = new LeaseTable(this.link, settings.schema, settings.migrate);
    this.channel = new LeaseChannel(this.link, settings.messages, (name) => contended.set(name, true));
    this.releases = new LeaseReleases(this.table, contended);
    this.renewals = new LeaseRenewals(this.table);
    const takes = new LeaseTakes(this.table, contended, this.channel);
    this.queue = new LeaseTableQueue(this.table, takes, this.channel);
    this.sweeper = new LeaseSweeper(this.table, settings.fenceTtl);
  }

  acquire({ name, ...request }: AcquireRequest): Promise<AcquireAnswer> {
    return this.acquireSeveral({ ...request, names: [name] });
  }

  async acquireSeveral({ prefix, names, ticket, ttl, leastToken = 0 }: AcquireSeveralRequest): Promise<AcquireAnswer> {
    // In the order in which every statement locks them.
    const keyed = inOrder(names.map((name) => ({ key: lockKey({ prefix, name }), name })));
    const keys = keyed.map(({ key }) => key);
    const row = await this.table.row(this.table.statements.acquire, [keys, ticket, ttl, leastToken]);
    const [status, token, remaining, busyAt, owner] = row;
    if (Number(status) === 1) return { ...granted(token, 1, remaining, 0), waiting: undefined };
    const { name } = keyed[Number(busyAt) - 1] as { name: string };
    return { status: 'busy', name, owner: String(owner), remaining: Math.max(0, Number(remaining)) };
  }

  renew(requests: readonly RenewRequest[]): readonly Pending<RenewAnswer>[] {
    return requests.map((request) => {
      const { name, ticket, ttl } = request;
      return this.renewals.renew({ key: lockKey(request), name, ticket, ttl });
    });
  }

  release(request: TicketRequest): Pending<ReleaseAnswer> {
    const { name, ticket } = request;
    return this.releases.release({ key: lockKey(request), name, ticket });
  }

  async mint(request: MintRequest): Promise<TokenRange | null> {
    const values = [lockKey(request), request.ticket, request.leastToken];
    const [first, count] = await this.table.row(this.table.statements.mint, values);
    return first === null ? null : { first: Number(first), count: Number(count) };
  }

  async keep(request: KeepRequest): Promise<ReleaseAnswer> {
    const { ticket, rest } = request;
    const [answer] = await this.table.row(this.table.statements.keep, [[lockKey(request)], ticket, rest]);
    return { status: releaseStatus(answer), resent: false };
  }

  async inspect(request: NameRequest): Promise<LockState | null> {
    const { statements } = this.table;
    const values = [lockKey(request), labelPrefix(request)];
    const { rows } = await this.table.query(statements.inspect, values);
    const [row] = rows;
    if (!row) return null;
    const [owner, ttl, unissued, waiting, label] = row;
    const queued = Number(waiting) > 0 ? (await this.table.query(statements.waiters, values)).rows : [];
    return {
      owner: String(owner),
      ...(typeof label === 'string' && { label }),
      ttl: Number(ttl),
      fencingToken: Number(unissued) - 1,
      waiting: Number(waiting),
      waiters: queued.map(([ticket, of]) => ({ ticket: String(ticket), ...(typeof of === 'string' && { label: of }) })),
    };
  }

  async label(request: LabelRequest): Promise<void> {
    const { process, label, ttl } = request;
    const { statements } = this.table;
    const of = labelPrefix(request) + process;
    if (ttl === 0) await this.table.query(statements.unlabel, [of]);
    else await this.table.query(statements.label, [of, label, ttl]);
  }

  async forceRelease(request: NameRequest): Promise<string | null> {
    const [owner] = await this.table.row(this.table.statements.forceRelease, [lockKey(request)]);
    return typeof owner === 'string' ? owner : null;
  }

  whenConnected(listener: () => void): () => void {
    return this.link.watch.whenConnected(listener);
  }

  async start(request: StartRequest): Promise<void> {
    this.link.reporters.add(request);
    this.sweeper.start();
    await checkLeaseTable(this.table, this.settings.schema, request.report);
  }

  diagnose(error?: unknown): Error {
    return this.link.diagnose(error);
  }

  async ping(): Promise<void> {
    await this.link.run('SELECT 1');
  }

  async close(): Promise<void> {
    this.sweeper.stop();
    this.channel.close();
    await this.link.close();
  }
}

/** The queue of the lease table: rows of waiters, and a message for each hand-over. */
class LeaseTableQueue implements LockQueue {
  constructor(
    private readonly table: LeaseTable,
    private readonly takes: LeaseTakes,
    private readonly channel: LeaseChannel,
  ) {}

  listen(listener: QueueListener): Promise<void> {
    return this.channel.listen(listener);
  }

  unlisten(listener: Pick<QueueListener, 'prefix' | 'process'>): void {
    this.channel.unlisten(listener);
  }

  enqueue(request: EnqueueRequest): Pending<QueueAnswer> {
    const { name, ticket, ttl, claim = null } = request;
    return this.takes.enqueue({ key: lockKey(request), name, ticket, ttl, claim });
  }

  async beat(request: BeatRequest): Promise<QueueAnswer | { status: 'gone' }> {
    const row = await this.table.row(this.table.statements.beat, [lockKey(request), request.ticket]);
    return isGone(row) ? { status: 'gone' } : this.channel.withReach(queueAnswer(row), request.name);
  }

  async requeue(request: RequeueRequest): Promise<QueueAnswer | { status: 'not-owner'; resent: boolean }> {
    const { name, ticket, again, claim } = request;
    const values = [lockKey(request), ticket, again, claim, nameInMessages(name)];
    const row = await this.table.row(this.table.statements.requeue, values);
    if (isGone(row)) return { status: 'not-owner', resent: false };
    return this.channel.withReach(queueAnswer(row), name);
  }
}

/** The oldest version that is supported by its makers, and that has identity columns. */
const LEAST_VERSION = 120_000;

/**
 * Checks the server before it is used: its version, whether it takes writes, its isolation level, and the rights.
 * Creates the tables and functions where they are missing.
 *
 * @throws PostgresFailure or BackendRefusal in one line
 */
async function checkLeaseTable(table: LeaseTable, schema: string, report: (notice: Notice) => void): Promise<void> {
  const { server } = table.link;
  const settings = statementOf(
    'check',
    `
SELECT current_setting('server_version_num'), current_setting('transaction_read_only'),
  current_setting('transaction_isolation'), current_setting('synchronous_commit'), current_user,
  EXISTS (
    SELECT 1 FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = '${schema}' AND p.proname = '${LAST_FUNCTION}'
  )::text`,
  );
  const { rows } = await table.link.query(settings, []);
  const [version, readOnly, isolation, durability, user, complete] = (rows[0] ?? []).map(String);
  const refuse = (why: string) => new PostgresFailure(`${server} ${why}`);
  if (Number(version) < LEAST_VERSION) throw refuse(`is too old (${version}): use PostgreSQL 12 or later`);
  if (readOnly === 'on') throw refuse('takes no writes: give the address of the primary');
  if (isolation !== 'read committed') {
    throw new BackendRefusal(
      `${server} runs ${isolation} transactions: set default_transaction_isolation to 'read committed' for the locks, ` +
        'and start the process again',
    );
  }
  if (durability === 'off') {
    const message = `${server}: with synchronous_commit "off" a crash of the server may forget locks of its last moments`;
    report({ level: 'debug', message });
  }
  if (complete !== 'true') await table.migration.run();
  await checkRights(table, schema, user ?? '');
}

async function checkRights(table: LeaseTable, schema: string, user: string): Promise<void> {
  const rights = statementOf(
    'rights',
    `
SELECT (CASE WHEN has_schema_privilege('${schema}', 'USAGE') THEN (
  SELECT bool_and(has_table_privilege('${schema}.' || name, 'SELECT') AND has_table_privilege('${schema}.' || name, 'INSERT')
    AND has_table_privilege('${schema}.' || name, 'UPDATE') AND has_table_privilege('${schema}.' || name, 'DELETE'))
  FROM unnest(ARRAY['locks', 'waiters', 'labels']) AS name) END)::text`,
  );
  const { rows } = await table.link.query(rights, []);
  if (String(rows[0]?.[0]) === 'true') return;
  throw new PostgresFailure(
    `${table.link.server}: user "${user}" lacks rights: GRANT USAGE ON SCHEMA ${schema} TO "${user}"; ` +
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO "${user}"`,
  );
}

/** Whether `beat` or `requeue` answered -1: the ticket is gone, or not the owner. */
function isGone([status]: Row): boolean {
  return Number(status) === -1;
}
