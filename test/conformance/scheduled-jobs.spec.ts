import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import {
  type Lock,
  LockLostError,
  memory,
  PrimitiveConfigError,
  PrimitiveKeyError,
  redis,
  type ScheduledJobEvent,
  ScheduledJobs,
  type ScheduleOptions,
} from 'nest-redis-lock';
import type { PrimitiveStoreProvider, PrimitiveStores, RunRecords } from '../../lib/contracts/primitive-stores.js';
import { PrimitiveRuntime } from '../../lib/primitives/runtime.js';
import { eventually } from '../support/eventually.js';
import { Gate } from '../support/gate.js';
import { startLockApp } from '../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../support/servers/redis-server.js';
import { eachLockBackend, one, options, two } from './each-lock-backend.js';

/** A job that no test outlasts. */
const LONG: ScheduleOptions = { atMostFor: '5m', atLeastFor: '1m' };
/** A job whose name is free when it has ended. */
const FREE: ScheduleOptions = { atMostFor: '5m', atLeastFor: 0 };

let jobs: ScheduledJobs;
let elsewhere: ScheduledJobs;
let count = 0;
let name: string;

function recorded(of: ScheduledJobs): ScheduledJobEvent[] {
  const events: ScheduledJobEvent[] = [];
  of.events.subscribe((event) => events.push(event));
  return events;
}

eachLockBackend(() => {
  beforeAll(() => {
    jobs = one.app.get(ScheduledJobs);
    elsewhere = two.app.get(ScheduledJobs);
  });
  beforeEach(() => {
    name = `job-${++count}`;
  });

  it('runs in one application, and skips in another with an event', async () => {
    const [here, there] = [recorded(jobs), recorded(elsewhere)];
    expect(await jobs.run(name, LONG, async () => 'made')).toBe('made');
    expect(await elsewhere.run(name, LONG, async () => 'made twice')).toBeUndefined();
    expect(here).toMatchObject([
      { kind: 'started', name },
      { kind: 'succeeded', name, took: expect.any(Number) },
    ]);
    expect(there).toEqual([{ kind: 'skipped', name, remaining: expect.any(Number) }]);
    const { remaining } = there[0] as Extract<ScheduledJobEvent, { kind: 'skipped' }>;
    expect(remaining).toBeGreaterThan(0);
    expect(remaining).toBeLessThanOrEqual(60_000);
  });

  it('skips at once while another run is under way, also in the same application', async () => {
    const gate = new Gate();
    const running = jobs.run(name, FREE, () => gate.opened);
    await eventually(() => one.locks.isLocked(`schedule:${name}`));
    expect(await Promise.all([jobs.run(name, FREE, fail), elsewhere.run(name, FREE, fail)])).toEqual([
      undefined,
      undefined,
    ]);
    gate.open();
    await running;
  });

  it('frees the name after atLeastFor', async () => {
    const short: ScheduleOptions = { atMostFor: '5m', atLeastFor: 400 };
    const tokens: number[] = [];
    const run = (of: ScheduledJobs) => of.run(name, short, async (lock) => tokens.push(lock.fencingToken));
    await run(jobs);
    await eventually(async () => (await run(elsewhere)) !== undefined);
    // A token is the time of its grant in µs, by the clock of the store.
    expect(((tokens[1] as number) - (tokens[0] as number)) / 1_000).toBeGreaterThanOrEqual(398);
  });

  it('frees the name at the end of a run with atLeastFor: 0', async () => {
    await jobs.run(name, FREE, async () => {});
    expect(await elsewhere.run(name, FREE, async () => 'made')).toBe('made');
  });

  it('frees the name at the end of a run that took longer than atLeastFor', async () => {
    await jobs.run(name, { atMostFor: '5m', atLeastFor: 100 }, () => sleep(150));
    expect(await elsewhere.run(name, FREE, async () => 'made')).toBe('made');
  });

  it('aborts the signal at atMostFor, and lets the next run begin', async () => {
    const events = recorded(jobs);
    const stuck = jobs.run(name, { atMostFor: 1_000, atLeastFor: 0 }, async ({ signal }) => {
      await eventually(() => signal.aborted);
      await eventually(async () => (await elsewhere.run(name, FREE, async () => 'next')) === 'next');
    });
    await expect(stuck).rejects.toThrow(LockLostError);
    expect(events.at(-1)).toMatchObject({ kind: 'failed', name, error: expect.any(LockLostError) });
    expect(await jobs.lastRun(name)).toMatchObject({ outcome: 'succeeded' });
  });

  it('goes on after atMostFor once it has extended its lock', async () => {
    const run = jobs.run(name, { atMostFor: 2_000, atLeastFor: 0 }, async (lock) => {
      await lock.extend('1m');
      await sleep(2_100);
      return lock.held;
    });
    expect(await run).toBe(true);
  });

  it('is not limited by maxHold and minHold of the defaults', async () => {
    await using started = await startLockApp({ ...options(), defaults: { maxHold: 300, minHold: '5m' } });
    const limited = started.app.get(ScheduledJobs);
    await limited.run(name, FREE, () => sleep(400));
    expect(await limited.run(name, FREE, async () => 'made')).toBe('made');
  });

  it('records and reports the end of a run that ends while the application shuts down', async () => {
    const ending = await startLockApp(options());
    const [gate, begun] = [new Gate(), new Gate()];
    const of = ending.app.get(ScheduledJobs);
    const events = recorded(of);
    const running = of.run(name, FREE, () => {
      begun.open();
      return gate.opened;
    });
    await begun.opened;
    const closed = ending.close();
    const refused = (error: Error) => error.message.includes('shutting down');
    await eventually(() => of.run('next', FREE, async () => false).catch(refused));
    gate.open();
    await Promise.all([running, closed]);
    expect(events.filter((event) => event.name === name).map(({ kind }) => kind)).toEqual(['started', 'succeeded']);
    expect(await jobs.lastRun(name)).toMatchObject({ outcome: 'succeeded' });
    expect(ending.logger.lines).toEqual([]);
  });

  it('runs a nested call of the same name as a part of the run', async () => {
    const events = recorded(jobs);
    const inner = () => jobs.run(name, LONG, async (lock: Lock) => lock.fencingToken);
    const tokens = await jobs.run(name, LONG, async (lock) => [lock.fencingToken, await inner()]);
    expect(tokens?.[0]).toBe(tokens?.[1]);
    expect(events.map(({ kind }) => kind)).toEqual(['started', 'succeeded']);
  });

  it('rejects with the error of the run, and reports it', async () => {
    const events = recorded(jobs);
    const error = new Error('no paper');
    await expect(jobs.run(name, LONG, () => Promise.reject(error))).rejects.toBe(error);
    expect(events.at(-1)).toMatchObject({ kind: 'failed', name, error });
    expect(await elsewhere.lastRun(name)).toMatchObject({ outcome: 'failed' });
  });

  it('knows in each application when the job last ran, where, and how it ended', async () => {
    expect(await jobs.lastRun(name)).toBeNull();
    const gate = new Gate();
    const tokens: number[] = [];
    const running = jobs.run(name, FREE, (lock) => {
      tokens.push(lock.fencingToken);
      return gate.opened;
    });
    // The request that takes the lock may also record the run, so before the body begins.
    await eventually(() => tokens.length > 0);
    const begun = await eventually(() => elsewhere.lastRun(name));
    expect(begun).toEqual({
      name,
      startedAt: expect.any(Date),
      endedAt: null,
      outcome: 'running',
      by: expect.stringContaining(String(process.pid)),
      fencingToken: tokens[0],
    });
    gate.open();
    await running;
    const ended = await elsewhere.lastRun(name);
    expect(ended).toEqual({ ...begun, endedAt: expect.any(Date), outcome: 'succeeded' });
    expect(Math.abs(Date.now() - Number(ended?.startedAt))).toBeLessThan(30_000);
    expect(Number(ended?.endedAt)).toBeGreaterThanOrEqual(Number(ended?.startedAt));
  });

  it('does not know how a run ended whose process died, once atMostFor has passed', async () => {
    const { stores } = one.app.get(PrimitiveRuntime).home('Tests');
    await stores.runs.begin({ name: `schedule:${name}`, token: 7, by: 'gone', atMostFor: 100 });
    const last = await eventually(async () => {
      const run = await elsewhere.lastRun(name);
      return run?.outcome === 'running' ? undefined : run;
    });
    expect(last).toMatchObject({ outcome: 'unknown', endedAt: null, by: 'gone', fencingToken: 7 });
  });

  it('has a lock of its own: a plain lock of the same name is another one', async () => {
    const held = await one.locks.acquire(name);
    expect(await jobs.run(name, FREE, async () => 'made')).toBe('made');
    await held.release();
  });

  it.each<[string, unknown, string]>([
    ['an unknown option', { ...LONG, wait: 100 }, 'Unknown option of a scheduled job "wait"'],
    ['no atMostFor', { atLeastFor: 0 }, 'Option "atMostFor" is undefined; give how long a run may last'],
    ['no atLeastFor', { atMostFor: 1_000 }, 'Option "atLeastFor" is undefined; give more than the clocks'],
    [
      'a wrong order',
      { atMostFor: '1s', atLeastFor: '2s' },
      'Option "atLeastFor" is "2s"; give at most atMostFor (1000)',
    ],
    ['a short atMostFor', { atMostFor: 99, atLeastFor: 0 }, 'Option "atMostFor" is 99'],
    ['no options', undefined, 'Option "options" is undefined; give { atMostFor, atLeastFor }'],
  ])('refuses %s', async (_what, wrong, message) => {
    const refused = jobs.run(name, wrong as ScheduleOptions, fail);
    await expect(refused).rejects.toThrow(PrimitiveConfigError);
    await expect(refused).rejects.toThrow(message);
  });

  it('refuses a run without a body, and leaves its name free', async () => {
    await expect(jobs.run(name, LONG, undefined as never)).rejects.toThrow(PrimitiveConfigError);
    expect(await jobs.run(name, LONG, async () => 'made')).toBe('made');
  });

  it.each(['', 'report:<0>', 'report:<0.id>', 7])('refuses %p as a name', async (wrong) => {
    await expect(jobs.run(wrong as string, LONG, fail)).rejects.toThrow(PrimitiveKeyError);
    await expect(jobs.lastRun(wrong as string)).rejects.toThrow(PrimitiveKeyError);
  });
});

function fail(): Promise<never> {
  return Promise.reject(new Error('It ran'));
}

describe('records of runs', () => {
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
});
