import { Redis } from 'ioredis';
import type { CacheStore, ScheduledDeletions } from 'nest-redis-lock/backend';
import { RedisCacheKeys } from '../../../../lib/backends/redis/cache/redis-cache-keys.js';
import { RedisScheduledDeletions } from '../../../../lib/backends/redis/cache/redis-deletions.js';
import { ScriptRunner } from '../../../../lib/backends/redis/connection/script-runner.js';
import { nameOfPrefix, ScheduledDeletionsRunner } from '../../../../lib/cache/invalidation/double-deletions.js';
import { eventually } from '../../../support/eventually.js';
import { Gate } from '../../../support/gate.js';
import { RecordingLogger } from '../../../support/recording-logger.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

let server: RedisServer;
let client: Redis;
let strings: Redis;
let deletions: RedisScheduledDeletions;
const keys = new RedisCacheKeys('shop');
const runners: ScheduledDeletionsRunner[] = [];

beforeAll(async () => {
  server = await startRedisServer();
  client = new Redis(server.url);
  strings = new Redis(server.url, { stringNumbers: true });
  deletions = new RedisScheduledDeletions(new ScriptRunner(strings), keys);
});
afterEach(async () => {
  for (const runner of runners.splice(0)) runner.stop();
  await client.flushall();
});
afterAll(async () => {
  client.disconnect();
  strings.disconnect();
  await server.stop();
});

const empty = async () => (await client.exists(keys.scheduled)) === 0;
/** Until something is due, and claims it. */
const claimed = (claim: number) =>
  eventually(async () => {
    const answer = await deletions.claim(10, claim);
    return answer.names.length > 0 ? answer : null;
  });

describe('the store', () => {
  it('has keys due after their delay, in their order, at most as many as asked for', async () => {
    expect(await deletions.claim(10, 1_000)).toEqual({ names: [], next: null });
    await deletions.schedule(['c'], 60_000);
    await deletions.schedule(['b'], 1_000);
    await deletions.schedule(['a'], 0);
    await eventually(async () => (await client.zcount(keys.scheduled, 0, Date.now() - 1)) === 2);
    expect((await deletions.claim(1, 30_000)).names).toEqual(['a']);
    const { names: due, next } = await deletions.claim(10, 30_000);
    expect(due).toEqual(['b']);
    expect(next).toBeGreaterThan(20_000);
    expect(next).toBeLessThanOrEqual(30_001);
    await deletions.done(['a', 'b']);
    expect((await deletions.claim(10, 30_000)).next).toBeGreaterThan(50_000);
  });

  it('lets a later time take the place of an earlier one, and not the other way round', async () => {
    await deletions.schedule(['a'], 1);
    await deletions.schedule(['a'], 60_000);
    await deletions.schedule(['a'], 1);
    expect((await deletions.claim(10, 1_000)).next).toBeGreaterThan(50_000);
  });

  it('has what was claimed due again when the claim ends, unless it is done', async () => {
    await deletions.schedule(['a', 'b'], 0);
    expect((await claimed(100)).names).toEqual(['a', 'b']);
    expect((await deletions.claim(10, 100)).names).toEqual([]);
    await deletions.done(['a']);
    expect((await claimed(100)).names).toEqual(['b']);
    await deletions.done(['b']);
    expect(await empty()).toBe(true);
  });

  it('does not forget what was scheduled anew since it was claimed, be it for earlier than the claim ends', async () => {
    await deletions.schedule(['a', 'b'], 0);
    await claimed(60_000);
    await deletions.schedule(['a'], 1);
    await deletions.done(['a', 'b', 'unknown']);
    expect((await claimed(60_000)).names).toEqual(['a']);
    await deletions.done(['a']);
    await deletions.done(['a']);
    expect(await empty()).toBe(true);
  });

  it('tells everybody', async () => {
    const subscriber = new Redis(server.url);
    const heard: string[] = [];
    subscriber.on('message', (_channel, message: string) => heard.push(message));
    await subscriber.subscribe(keys.channel);
    await deletions.schedule(['a', 'b'], 1_500);
    await eventually(() => heard.length > 0);
    expect(heard).toEqual(['d1500']);
    subscriber.disconnect();
  });
});

interface Worker {
  readonly runner: ScheduledDeletionsRunner;
  readonly deleted: string[];
  readonly logger: RecordingLogger;
  claims: number;
}

/** A process that carries deletions out. */
function work(invalidate: (keys: readonly string[]) => Promise<void> = async () => {}): Worker {
  const logger = new RecordingLogger();
  const deleted: string[] = [];
  const counted: ScheduledDeletions = {
    schedule: (...args) => deletions.schedule(...args),
    claim: (...args) => {
      worker.claims += 1;
      return deletions.claim(...args);
    },
    renew: (...args) => deletions.renew(...args),
    done: (...args) => deletions.done(...args),
  };
  const runner = new ScheduledDeletionsRunner(
    { deletions: counted } as unknown as CacheStore,
    {
      ofKeys: async (due) => {
        await invalidate(due);
        deleted.push(...due);
      },
      ofPrefix: async ({ prefix }) => {
        await invalidate([prefix]);
        deleted.push(`${prefix}*`);
      },
    },
    logger,
  );
  const worker: Worker = { runner, deleted, logger, claims: 0 };
  runners.push(runner);
  return worker;
}

describe('the runner', () => {
  it('deletes what it scheduled when it is due, and not before', async () => {
    const { runner, deleted } = work();
    const start = performance.now();
    await runner.schedule(['late'], 300);
    await runner.schedule(['a', 'b'], 100);
    await eventually(() => deleted.length === 2);
    expect(performance.now() - start).toBeGreaterThanOrEqual(100);
    expect(deleted).toEqual(['a', 'b']);
    await eventually(() => deleted.length === 3);
    expect(performance.now() - start).toBeGreaterThanOrEqual(300);
    await eventually(empty);
  });

  it('deletes more than one batch', async () => {
    const { runner, deleted } = work();
    const many = Array.from({ length: 450 }, (_, index) => `key:${index}`);
    await runner.schedule(many, 10);
    await eventually(empty);
    expect(deleted.toSorted()).toEqual(many.toSorted());
  });

  it('carries out what a process left that died before', async () => {
    const dying = work();
    await dying.runner.schedule(['a'], 50);
    dying.runner.stop();
    await eventually(async () => (await client.zcount(keys.scheduled, 0, Date.now())) === 1);
    expect(dying.deleted).toEqual([]);
    const { runner, deleted } = work();
    runner.start();
    await eventually(() => deleted.length === 1);
    expect(deleted).toEqual(['a']);
    await eventually(empty);
  });

  it('carries out deletions of a process that died after scheduling them, and those not yet due at its first look', async () => {
    const dying = work();
    const told = work();
    const begun = work();
    await dying.runner.schedule(['a'], 200);
    dying.runner.stop();
    told.runner.onScheduled(200);
    begun.runner.start();
    await eventually(() => told.deleted.length + begun.deleted.length === 1);
    await eventually(empty);
    expect(dying.deleted).toEqual([]);
  });

  it('leaves it to the process that scheduled it', async () => {
    const scheduling = work();
    const others = [work(), work(), work()];
    await scheduling.runner.schedule(['a'], 100);
    const start = performance.now();
    const [told, looking, lookingToo] = others as [Worker, Worker, Worker];
    told.runner.onScheduled(100);
    looking.runner.start();
    lookingToo.runner.start();
    await eventually(() => looking.claims > 1 || lookingToo.claims > 1);
    expect(performance.now() - start).toBeGreaterThan(300);
    await eventually(() => told.claims > 0 && looking.claims > 1 && lookingToo.claims > 1);
    await eventually(() => [scheduling, ...others].some(({ deleted }) => deleted.length > 0));
    expect(scheduling.deleted).toEqual(['a']);
    expect(others.flatMap(({ deleted }) => deleted)).toEqual([]);
  });

  it('takes over what a process claimed that died over it', async () => {
    await deletions.schedule(['a'], 0);
    await claimed(300);
    const { runner, deleted } = work();
    runner.start();
    await eventually(() => deleted.length === 1);
    await eventually(empty);
  });

  it('deletes again what was scheduled anew while it deleted it, one after the other', async () => {
    const gate = new Gate();
    const begun = new Gate();
    let underWay = 0;
    let most = 0;
    const { runner, deleted } = work(async () => {
      most = Math.max(most, ++underWay);
      begun.open();
      await gate.opened;
      underWay -= 1;
    });
    await runner.schedule(['a'], 0);
    await begun.opened;
    await runner.schedule(['a'], 50);
    await eventually(async () => (await client.zcount(keys.scheduled, 0, Date.now() - 100)) === 1);
    gate.open();
    await eventually(() => deleted.length === 2);
    await eventually(empty);
    expect(most).toBe(1);
  });

  it('deletes by prefix, keeps the claim of it however long it takes, and deletes keys meanwhile', async () => {
    const gate = new Gate();
    const worker = work(([name]) => (name === 'p:' ? gate.opened : Promise.resolve()));
    const { runner, deleted } = worker;
    const name = nameOfPrefix({ prefix: 'p:', batch: 7 });
    await runner.schedule([name], 0);
    await eventually(() => worker.claims > 0);
    await runner.schedule(['a'], 0);
    await eventually(() => deleted.includes('a'));
    const claimedUntil = async () => Number(await client.zscore(keys.scheduled, name));
    const until = await claimedUntil();
    await eventually(async () => (await claimedUntil()) > until);
    expect(deleted).toEqual(['a']);
    gate.open();
    await eventually(empty);
    expect(deleted).toEqual(['a', 'p:*']);
  });

  it('does not forget a deletion by prefix that failed', async () => {
    const { runner, logger } = work(() => Promise.reject(new Error('refused')));
    const name = nameOfPrefix({ prefix: 'p:', batch: 7 });
    await runner.schedule([name], 0);
    await eventually(() => logger.matching(/Scheduled deletions failed: refused; repeated/).length === 1);
    expect(await client.zscore(keys.scheduled, name)).not.toBeNull();
  });

  it('repeats what failed until it succeeds, and says so once', async () => {
    let failures = 0;
    const flaky = work();
    const store: ScheduledDeletions = {
      schedule: (...args) => deletions.schedule(...args),
      claim: (...args) => {
        failures += 1;
        return failures < 4 ? Promise.reject(new Error('away')) : deletions.claim(...args);
      },
      renew: (...args) => deletions.renew(...args),
      done: (...args) => deletions.done(...args),
    };
    const logger = new RecordingLogger();
    const runner = new ScheduledDeletionsRunner(
      { deletions: store } as unknown as CacheStore,
      { ofKeys: async (due) => void flaky.deleted.push(...due), ofPrefix: async () => {} },
      logger,
    );
    runners.push(runner);
    await runner.schedule(['a'], 0);
    await eventually(() => flaky.deleted.length === 1);
    expect(logger.lines).toHaveLength(1);
    expect(logger.matching(/Scheduled deletions failed: away; repeated/)).toHaveLength(1);
    await eventually(empty);
  });

  it('does not forget what it could not delete', async () => {
    const { runner, logger } = work(() => Promise.reject(new Error('refused')));
    await runner.schedule(['a'], 0);
    await eventually(() => logger.lines.length === 1);
    expect(await client.zscore(keys.scheduled, 'a')).not.toBeNull();
    expect((await deletions.claim(10, 1)).next).toBeGreaterThan(5_000);
  });

  it('asks once at its start, and not again while nothing is scheduled', async () => {
    const idle = work();
    idle.runner.start();
    await eventually(() => idle.claims === 1);
    const busy = work();
    for (let round = 1; round <= 3; round++) {
      await busy.runner.schedule([`${round}`], 300);
      await eventually(() => busy.deleted.length === round);
    }
    expect(idle.claims).toBe(1);
    await eventually(empty);
    expect(busy.claims).toBeLessThanOrEqual(12);
  });

  it('rejects what could not be scheduled, and neither runs nor speaks after it was stopped', async () => {
    const stopped = work();
    stopped.runner.stop();
    stopped.runner.start();
    stopped.runner.onScheduled(0);
    await stopped.runner.schedule(['a'], 0);
    const { runner, deleted } = work();
    runner.start();
    await eventually(() => deleted.length === 1);
    expect([stopped.claims, stopped.deleted]).toEqual([0, []]);

    await client.set(keys.scheduled, 'of another type');
    await expect(runner.schedule(['b'], 0)).rejects.toThrow(/WRONGTYPE/);
  });
});
