import { LEASE, RETRY } from '../peers/patience.mjs';

/** The columns that verrou expects. */
export const VERROU_TABLE =
  'CREATE TABLE verrou (`key` varchar(255) NOT NULL PRIMARY KEY, owner varchar(255) NOT NULL, expiration bigint NOT NULL)';

/** Locks of `@verrou/core` in a table, by a dialect of kysely. */
export async function verrou(modules, dialectOf) {
  const { Kysely, ...dialects } = modules.require('kysely');
  const { LockFactory } = await modules.import('@verrou/core');
  const { kyselyStore } = await modules.import('@verrou/core/drivers/kysely');
  const connection = new Kysely({ dialect: dialectOf(dialects) });
  const store = kyselyStore({ connection, tableName: 'verrou', autoCreateTable: false }).factory();
  const locks = new LockFactory(store, { retry: { attempts: Infinity, delay: RETRY.delay } });
  return async (key, body) => {
    const lock = locks.createLock(key, LEASE);
    await lock.acquire();
    try {
      return await body();
    } finally {
      await lock.release();
    }
  };
}
