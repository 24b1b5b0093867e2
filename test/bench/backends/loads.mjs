import { LEASE, RETRY } from '../peers/connecting.mjs';

/** Every caller has names of its own. */
export const FREE_1 = { title: 'uncontended, 1 caller', processes: 1, callers: 1, keys: 'own' };
export const FREE_100 = { title: 'uncontended, 100 callers', processes: 1, callers: 100, keys: 'own' };

/** All callers want one name. */
export const HOT_4_1 = { title: 'hot key, 4 processes × 1 caller', processes: 4, callers: 1, keys: 'hot' };
export const HOT_4_25 = { title: 'hot key, 4 processes × 25 callers', processes: 4, callers: 25, keys: 'hot' };
export const HOT_1_100 = { title: 'hot key, 1 process × 100 callers', processes: 1, callers: 100, keys: 'hot' };

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
