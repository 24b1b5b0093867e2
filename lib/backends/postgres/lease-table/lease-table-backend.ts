import type { ClientConfig } from 'pg';
import type { LockBackend, LockQueue, LockStore, ModuleContext } from '../../../contracts/lock-backend.js';
import { BackendRefusal, ownStore, type Notice } from '../../../contracts/store.js';
import { duration, trueOrFalse, type Duration } from '../../../options/checks.js';
import { lockOption } from '../../../options/option-checks.js';
import { OptionTable, settingOf } from '../../../options/option-table.js';
import { schemaName } from '../connection/migration.js';
import {
  optionsOf,
  type PostgresConnection,
  requirePostgresConnection,
  PostgresFailure,
  PostgresRefusal,
} from '../connection/postgres-connection.js';
import { PostgresLink, statementOf, type Row } from '../connection/postgres-link.js';
import { ContendedNames, LeaseChannel, nameInMessages } from './lease-channel.js';
import { LeaseReleases, LeaseRenewals, releaseStatus } from './lease-releases.js';
import { LAST_FUNCTION } from './lease-statements.js';
import { LeaseTable, inOrder, labelPrefix, leaseSweeper, lockKey } from './lease-table.js';
import { LeaseTakes, granted, queueAnswer } from './lease-takes.js';
import { LONGEST_LEASE } from './waiter.sql.js';

/** The options of `leaseTable()` beside the connection. */
export interface LeaseTableOptions {
  /** The schema of the tables and functions. Lower-case letters, digits and `_`. @default 'nest_redis_lock' */
  schema?: string;
  /**
   * Whether the backend creates schema, tables and functions when it finds them missing. Otherwise run
   * docs/postgres.sql first.
   * @default true
   */
  migrate?: boolean;
  /**
   * How long the row of a name stays after its last use. Tokens rise even without it, because they start from the clock
   * of the server; the row bridges a clock that was set back. At least 1 s.
   * @default '10m'
   */
  fenceTtl?: Duration;
  /**
   * The connection for messages, where the other one leads through a pooler in transaction mode, which passes on none.
   * @default the options of the other connection
   */
  messages?: ClientConfig | string;
}

interface LeaseTableSettings {
  readonly schema: string;
  readonly migrate: boolean;
  readonly fenceTtl: number;
  readonly messages: ClientConfig | undefined;
}

const setting = settingOf<LeaseTableSettings>();

const OPTIONS = new OptionTable<LeaseTableOptions, LeaseTableSettings>(
  lockOption,
  'option of leaseTable()',
  '',
  { schema: 'nest_redis_lock', migrate: true, fenceTtl: 600_000, messages: undefined },
  {
    schema: setting('schema', schemaName),
    migrate: setting('migrate', trueOrFalse),
    fenceTtl: setting('fenceTtl', duration(1_000)),
    messages: setting('messages', (value, option) => {
      requirePostgresConnection(option, value);
      return optionsOf(value);
    }),
  },
);

/**
 * Locks as rows of a table: each has an owner, the end of its lease by the clock of the server, and a fencing token
 * that rises. A release gives the lock to the next waiter in the same transaction, and sends its process a message.
 *
 * The backend uses a pool that is passed in and never closes it. It opens a connection of its own for messages at the
 * first wait for a busy lock, and one more for statements while all connections of the pool are in use.
 *
 * @throws LockConfigError for a connection or an option that it cannot use
 */
export function leaseTable(connection: PostgresConnection, options: LeaseTableOptions = {}): LockBackend {
  requirePostgresConnection('connection', connection);
  return leaseTableOn(connection, OPTIONS.settings(lockOption.object('options', options, 'an object of options')));
}

function leaseTableOn(connection: PostgresConnection, settings: LeaseTableSettings): LockBackend {
  const { schema, migrate, messages, fenceTtl } = settings;
  const contended = new ContendedNames();
  const link = new PostgresLink(connection);
  const table = new LeaseTable(link, schema, migrate);
  const { statements } = table;
  const channel = new LeaseChannel(link, messages, (name) => contended.set(name, true));
  const releases = new LeaseReleases(table, contended);
  const renewals = new LeaseRenewals(table);
  const takes = new LeaseTakes(table, contended, channel);
  const sweeper = leaseSweeper(table, fenceTtl);

  /** Rows of waiters, and a message for each hand-over. */
  const queueOf = (module: ModuleContext, keyOf: (name: string) => string): LockQueue => ({
    listen: () => channel.listen(module),

    enqueue: ({ name, ticket, ttl, claim = null }) =>
      takes.enqueue({ key: keyOf(name), name, ticket, ttl: leaseOf(ttl), claim: claim && leaseOf(claim) }),

    async beat({ name, ticket }) {
      const row = await table.row(statements.beat, [keyOf(name), ticket]);
      return isGone(row) ? { status: 'gone' } : channel.withReach(queueAnswer(row), name);
    },

    async requeue({ name, ticket, again, claim }) {
      const row = await table.row(statements.requeue, [
        keyOf(name),
        ticket,
        again,
        leaseOf(claim),
        nameInMessages(name),
      ]);
      if (isGone(row)) return { status: 'not-owner', resent: false };
      return channel.withReach(queueAnswer(row), name);
    },
  });

  const storeOf = (module: ModuleContext, forget: () => void): LockStore => {
    const { prefix, process, report } = module;
    const keyOf = (name: string) => lockKey(prefix, name);
    const acquireSeveral: LockStore['acquireSeveral'] = async ({ names, ticket, ttl, leastToken = 0 }) => {
      // In the order in which every statement locks them.
      const keyed = inOrder(names.map((name) => ({ key: keyOf(name), name })));
      const keys = keyed.map(({ key }) => key);
      const row = await table.row(statements.acquire, [keys, ticket, leaseOf(ttl), leastToken]);
      const [status, token, remaining, busyAt, owner] = row;
      if (Number(status) === 1) return { ...granted(token, 1, remaining, 0), waiting: undefined };
      const { name } = keyed[Number(busyAt) - 1] as { name: string };
      return { status: 'busy', name, owner: String(owner), remaining: Math.max(0, Number(remaining)) };
    };
    return {
      queue: queueOf(module, keyOf),
      acquire: ({ name, ...request }) => acquireSeveral({ ...request, names: [name] }),
      acquireSeveral,

      renew: (requests) =>
        requests.map(({ name, ticket, ttl }) => renewals.renew({ key: keyOf(name), name, ticket, ttl: leaseOf(ttl) })),

      release: ({ name, ticket }) => releases.release({ key: keyOf(name), name, ticket }),

      async mint({ name, ticket, leastToken }) {
        const [first, count] = await table.row(statements.mint, [keyOf(name), ticket, leastToken]);
        return first === null ? null : { first: Number(first), count: Number(count) };
      },

      async keep({ name, ticket, rest }) {
        const [answer] = await table.row(statements.keep, [[keyOf(name)], ticket, leaseOf(rest)]);
        return { status: releaseStatus(answer), resent: false };
      },

      async inspect({ name }) {
        const values = [keyOf(name), labelPrefix(prefix)];
        const { rows } = await table.query(statements.inspect, values);
        const [row] = rows;
        if (!row) return null;
        const [owner, ttl, unissued, waiting, label] = row;
        const queued = Number(waiting) > 0 ? (await table.query(statements.waiters, values)).rows : [];
        return {
          owner: String(owner),
          ...labelled(label),
          ttl: Number(ttl),
          fencingToken: Number(unissued) - 1,
          waiting: Number(waiting),
          waiters: queued.map(([ticket, of]) => ({ ticket: String(ticket), ...labelled(of) })),
        };
      },

      async label(label, ttl) {
        const of = labelPrefix(prefix) + process;
        if (ttl === 0) await table.query(statements.unlabel, [of]);
        else await table.query(statements.label, [of, label, leaseOf(ttl)]);
      },

      async forceRelease({ name }) {
        const [owner] = await table.row(statements.forceRelease, [keyOf(name)]);
        return typeof owner === 'string' ? owner : null;
      },

      async start() {
        sweeper.start();
        await checkLeaseTable(table, schema, report);
      },

      stop() {
        channel.unlisten(module);
        forget();
      },
    };
  };

  return {
    name: 'postgres',
    traits: { lease: 'ttl', fencing: 'strict', leastLease: 1 },
    open: (module) => ownStore(storeOf(module, link.listeners.add(module))),
    diagnose: (error) => link.diagnose(error),
    ping: () => link.run('SELECT 1'),
    async close() {
      sweeper.stop();
      channel.close();
      await link.close();
    },
  };
}

/** The `minHold` of a lock comes on top of its `ttl`. A shorter lease is renewed. */
function leaseOf(ms: number): number {
  return Math.min(ms, LONGEST_LEASE);
}

function labelled(label: unknown): { label?: string } {
  return typeof label === 'string' ? { label } : {};
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
  if (Number(version) < LEAST_VERSION) {
    throw new PostgresRefusal(`${server} is too old (${version}): use PostgreSQL 12 or later`);
  }
  if (readOnly === 'on') throw new PostgresFailure(`${server} takes no writes: give the address of the primary`);
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
  if (complete !== 'true') await table.run();
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
  throw new PostgresRefusal(
    `${table.link.server}: user "${user}" lacks rights: GRANT USAGE ON SCHEMA ${schema} TO "${user}"; ` +
      `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO "${user}"`,
  );
}

/** Whether `beat` or `requeue` answered -1: the ticket is gone, or not the owner. */
function isGone([status]: Row): boolean {
  return Number(status) === -1;
}
