import { Redis } from 'ioredis';
import { memory, redis } from 'nest-redis-lock';
import type { RunRecords, PrimitiveStoreProvider, PrimitiveStores } from '../../lib/contracts/primitive-stores.js';
import { eventually } from '../support/eventually.js';
import { startRedisServer, type RedisServer } from '../support/servers/redis-server.js';

/** What each store does with records that arrive late, twice, or in another order. */

let server: RedisServer;
let client: Redis;

beforeAll(async () => {
  server = await startRedisServer();
  client = new Redis(server.url);
});
afterAll(async () => {
  client.disconnect();
  await server.stop();
});

const run = (token: number, changes: { by?: string; atMostFor?: number } = {}) => ({
  name: 'schedule:nightly',
  token,
  by: 'host:1',
  atMostFor: 60_000,
  ...changes,
});

describe.each(['redis', 'memory'] as const)('records of runs on %s', (kind) => {
  let records: RunRecords;
  const last = async () => await records.last('schedule:nightly');
  let open: (prefix?: string) => PrimitiveStores;

  beforeEach(async () => {
    await client.flushall();
    const backend = (kind === 'redis' ? redis(client) : memory()) as unknown as PrimitiveStoreProvider;
    open = (prefix) => backend.openPrimitiveStores(prefix);
    records = open().runs;
  });

  it('know a run from its begin to its end', async () => {
    expect(await last()).toBeNull();
    await records.begin(run(7));
    const begun = await last();
    expect(begun).toEqual({ token: 7, by: 'host:1', startedAt: expect.any(Number), end: undefined, overdue: false });
    await records.end({ ...run(7), took: 5, succeeded: true });
    expect(await last()).toEqual({ ...begun, end: { at: expect.any(Number), succeeded: true } });
  });

  it('keep a newer run when those of an older one arrive late', async () => {
    await records.begin(run(8, { by: 'host:2' }));
    await records.begin(run(7));
    await records.end({ ...run(7), took: 5, succeeded: true });
    expect(await last()).toMatchObject({ token: 8, by: 'host:2', end: undefined });
  });

  it('keep the first end of a run, whatever arrives after it', async () => {
    await records.begin(run(7));
    await records.end({ ...run(7), took: 5, succeeded: false });
    const ended = await last();
    expect(ended?.end?.succeeded).toBe(false);
    await records.end({ ...run(7), took: 5, succeeded: true });
    await records.begin(run(7));
    expect(await last()).toEqual(ended);
  });

  it('know the begin of a run of which only the end arrived', async () => {
    await records.end({ ...run(7), took: 5_000, succeeded: true });
    const { startedAt, end } = (await last()) ?? {};
    expect((end?.at ?? 0) - (startedAt ?? 0)).toBe(5_000);
  });

  it('forget the end of the run before when the next one begins', async () => {
    await records.end({ ...run(7), took: 5, succeeded: false });
    await records.begin(run(8));
    expect(await last()).toMatchObject({ token: 8, end: undefined });
  });

  it('know when a run should have ended', async () => {
    await records.begin(run(7, { atMostFor: 100 }));
    await eventually(async () => (await last())?.overdue);
    expect(await last()).toMatchObject({ token: 7, end: undefined, overdue: true });
  });

  it('keep tokens and labels exactly', async () => {
    await records.begin(run(Number.MAX_SAFE_INTEGER, { by: 'Büro: "1"\n' }));
    expect(await last()).toMatchObject({ token: Number.MAX_SAFE_INTEGER, by: 'Büro: "1"\n' });
  });

  it('are apart for each prefix', async () => {
    await open('shop').runs.begin(run(7));
    expect(await last()).toBeNull();
  });
});

it('records on Redis expire', async () => {
  const { runs } = (redis(client) as unknown as PrimitiveStoreProvider).openPrimitiveStores('shop');
  await runs.begin(run(7));
  expect(await client.keys('*')).toEqual(['shop:lock:{schedule:nightly}:run']);
  expect(await client.pttl('shop:lock:{schedule:nightly}:run')).toBeGreaterThan(399 * 24 * 3_600_000);
});
