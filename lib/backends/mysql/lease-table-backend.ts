import type { LockBackend, LockStore, ModuleContext } from '../../contracts/lock-backend.js';
import { processOf } from '../../contracts/lock-requests.js';
import { ownStore } from '../../contracts/store.js';
import { lockOption } from '../../options/option-checks.js';
import { BatchStatements } from './batch-statements.js';
import { LeaseReleases, LeaseRenewals } from './lease-releases.js';
import { LeaseTakes, LockedRows } from './lease-takes.js';
import { LockTable, labelIdOf, rowIdOf, TRIAL } from './lock-table.js';
import type { MysqlConnection } from './mysql-connection.js';
import { MysqlLink } from './mysql-link.js';
import { type LockTableSettings, type LeaseTableOptions, LEASE_TABLE_OPTIONS } from './mysql-options.js';
import { RowStatements, takenOf } from './row-statements.js';

/**
 * Keeps locks in a table of MySQL or MariaDB: a row for each name, with a lease that ends by the clock of the server.
 *
 * @param connection a pool of the application, which stays open; or what a pool of the backend's own is opened with
 * @throws LockConfigError for a connection or an option that it cannot use
 */
export function leaseTable(connection: MysqlConnection, options: LeaseTableOptions = {}): LockBackend {
  const given = lockOption.object('options', options, 'an object of options of leaseTable()');
  return leaseTableOn(new MysqlLink(connection), LEASE_TABLE_OPTIONS.settings(given));
}

/** How often `forceRelease` tries to free a name whose owner changes meanwhile. */
const FORCED_TRIES = 20;

/** Keeps each lock in a row, whose lease ends by the clock of the server. */
export function leaseTableOn(link: MysqlLink, settings: LockTableSettings): LockBackend {
  const table = new LockTable(link, new RowStatements(settings.table), settings);
  const { statements } = table;
  const several = new BatchStatements(settings.table);
  const locked = new LockedRows();
  const takes = new LeaseTakes(table, several, locked);
  const releases = new LeaseReleases(table, several, locked);
  const renewals = new LeaseRenewals(link, table, several, locked);
  const stateOf = async (id: string) => (await table.rows(statements.state(id)))[0];

  const storeOf = ({ prefix, process }: ModuleContext, stop: () => void): LockStore => {
    const idOf = (name: string) => rowIdOf(prefix, name);
    const store: LockStore = {
      acquire({ name, ticket, ttl, leastToken }) {
        table.sweeper.start();
        const shown = prefix === undefined ? name : `${prefix}:${name}`;
        return takes.take({ id: idOf(name), ticket, name, shown, ttl, leastToken });
      },

      renew: (requests) => renewals.renew(requests.map(({ name, ticket, ttl }) => ({ id: idOf(name), ticket, ttl }))),

      release: ({ name, ticket }) => releases.release({ id: idOf(name), ticket }),

      keep: ({ name, ticket, rest }) => releases.keep({ id: idOf(name), ticket }, rest),

      async mint({ name, ticket, leastToken }) {
        const minted = takenOf(await table.change(statements.mint({ id: idOf(name), ticket }, leastToken)));
        return 'tokens' in minted ? minted.tokens : null;
      },

      async inspect({ name }) {
        const state = await stateOf(idOf(name));
        if (!state) return null;
        const { owner, remaining: ttl, token: fencingToken } = state;
        const label = (await stateOf(labelIdOf(prefix, processOf(owner))))?.name;
        return { owner, ...(label !== undefined && { label }), ttl, fencingToken, waiting: 0 };
      },

      async label(label, ttl) {
        const id = labelIdOf(prefix, process);
        await table.change(ttl === 0 ? statements.dropText(id) : statements.keepText(id, label, ttl));
      },

      async forceRelease({ name }) {
        const id = idOf(name);
        for (let tries = 0; tries < FORCED_TRIES; tries += 1) {
          const ticket = (await stateOf(id))?.owner;
          if (ticket === undefined) return null;
          const { affectedRows } = await table.change(statements.free({ id, ticket }));
          if (affectedRows > 0) return ticket;
        }
        throw new Error(
          `"${name}" had another owner at each of ${FORCED_TRIES} tries to free it: free it again; or a connection of the ` +
            'pool reads old rows inside a transaction: commit before you release a connection',
        );
      },

      start: () => table.start(store, idOf(TRIAL)),
      stop,
    };
    return store;
  };

  return {
    name: 'mysql',
    traits: { lease: 'ttl', fencing: 'strict', leastLease: 1 },
    open: (module) => ownStore(storeOf(module, link.listeners.add(module))),
    ping: () => link.ping(),
    diagnose: (error) => link.diagnose(error),
    async close() {
      table.sweeper.stop();
      await link.close();
    },
  };
}
