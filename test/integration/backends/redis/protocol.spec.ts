import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { LockConfigError } from 'nest-redis-lock';
import type { Notice } from 'nest-redis-lock/backend';
import { RedisLink } from '../../../../lib/backends/redis/connection/redis-link.js';
import { EARLIEST_VERSION, PROTOCOL_VERSION } from '../../../../lib/backends/redis/connection/redis-script.js';
import { VersionsInUse } from '../../../../lib/backends/redis/connection/versions-in-use.js';
import { withFenceTtl } from '../../../../lib/backends/redis/locks/queue.lua.js';
import { RELEASE } from '../../../../lib/backends/redis/locks/release.lua.js';
import { openCache } from '../../../support/cache-instance.js';
import { eventually } from '../../../support/eventually.js';
import { FaultProxy } from '../../../support/fault-proxy.js';
import { startLockApp } from '../../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';

describe('versions', () => {
  const LOCKS = 'lock:{protocol}:versions';
  const VALUES = 'cache-versions';
  const LATER = PROTOCOL_VERSION + 1;

  let server: RedisServer;
  let plain: Redis;
  beforeAll(async () => {
    server = await startRedisServer();
    plain = new Redis(server.url);
  });
  afterEach(() => plain.flushall());
  afterAll(async () => {
    plain.disconnect();
    await server.stop();
  });

  const warnings = /do not work together/;
  const lasting = () => Date.now() + 60_000;

  /** Starts with `failFast`, so that it has looked at the versions when it is there. */
  const startApp = (prefix?: string) =>
    startLockApp({ redis: server.url, failFast: true, cache: {}, ...(prefix === undefined ? {} : { prefix }) });

  describe('the version of a process', () => {
    it('is noted under the prefix for its locks and its values, and the notes expire', async () => {
      await using app = await startApp('shop');
      const note = `${PROTOCOL_VERSION}=${EARLIEST_VERSION}@`;
      for (const key of [LOCKS, VALUES]) {
        expect(await plain.get(`shop:${key}`)).toContain(note);
        expect(await plain.pttl(`shop:${key}`)).toBeGreaterThan(60_000);
      }
      expect(app.logger.lines).toEqual([]);
    });

    it('is kept beside the notes of other versions, as long as those last', async () => {
      const until = lasting();
      await plain.set(LOCKS, `${LATER}=1@${until} ${LATER + 1}=1@1`);
      await using app = await startApp();
      expect(await plain.get(LOCKS)).toMatch(new RegExp(`^${PROTOCOL_VERSION}=1@\\d+ ${LATER}=1@${until}$`));
      expect(app.logger.lines).toEqual([]);
    });

    it('is no lock', async () => {
      await using app = await startApp();
      await app.locks.withLock('protocol', async () => {
        expect((await app.locks.list()).locks.map(({ key }) => key)).toEqual(['protocol']);
      });
    });

    it('is in the text of every script, also of one with another fenceTtl', () => {
      const first = `-- nest-redis-lock, protocol ${PROTOCOL_VERSION}\n`;
      const other = withFenceTtl(RELEASE, 5_000);
      for (const { lua } of [RELEASE, other]) {
        expect(lua.startsWith(first)).toBe(true);
        expect(lua.split(first)).toHaveLength(2);
        expect(lua.split('local fence_ttl')).toHaveLength(2);
      }
      expect(other.lua).toBe(RELEASE.lua.replace("'600000'", "'5000'"));
    });

    it('cannot be noted under a key of another type, and locks are taken all the same', async () => {
      await plain.hset(LOCKS, 'field', 'value');
      await using app = await startApp();
      expect(await app.locks.withLock('works', async () => 'ran')).toBe('ran');
      expect(app.logger.lines).toEqual([]);
    });
  });

  describe('processes of another version', () => {
    it('are warned of once at the start, for what they share, if they do not work beside this one', async () => {
      for (const key of [LOCKS, VALUES]) await plain.set(key, `${LATER}=${LATER}@${lasting()}`);
      await using app = await startApp();
      const lines = app.logger.matching(warnings);
      expect(lines).toHaveLength(2);
      expect(lines[0]).toContain(
        `Redis at 127.0.0.1:${server.port}: processes with protocol ${LATER} use the same locks`,
      );
      expect(lines[1]).toContain(`with protocol ${LATER} use the same cached values`);
    });

    it.each([
      ['that work beside this one', `${LATER}=${PROTOCOL_VERSION}@`, lasting],
      ['that were there', `${LATER}=${LATER}@`, () => Date.now() - 1],
    ])('%s are no matter for a warning', async (_which, note, until) => {
      await plain.set(LOCKS, note + String(until()));
      await using app = await startApp();
      expect(app.logger.lines).toEqual([]);
    });

    it('are warned of by a later version that does not work beside this one', async () => {
      await using app = await startApp();
      const link = new RedisLink(server.url, { name: 'redis', ConfigError: LockConfigError });
      const notices: Notice[] = [];
      const noted = async (earliest: number) => {
        const versions = new VersionsInUse(link.scripts, (notice) => notices.push(notice), {
          version: LATER,
          earliest,
        });
        await versions.note(LOCKS, 'locks');
        await versions.note(LOCKS, 'locks');
        versions.close();
      };
      await noted(PROTOCOL_VERSION);
      expect(notices).toEqual([]);
      await noted(LATER);
      expect(notices).toMatchObject([{ level: 'warn', message: expect.stringMatching(warnings) }]);
      link.close();
      expect(app.logger.lines).toEqual([]);
    });
  });

  describe('messages of a kind that is not known', () => {
    it('are warned of once, and waiters get their lock', async () => {
      await using holder = await startApp();
      await using waiter = await startApp();
      const held = await holder.locks.acquire('busy');
      const waiting = waiter.locks.acquire('busy', { wait: 60_000 });
      const channels = await eventually(async () => {
        const found = (await plain.call('PUBSUB', 'CHANNELS', 'lock:process:*')) as string[];
        const own = found.filter((channel) => !channel.includes(':beat:'));
        return own.length > 0 ? own : undefined;
      });
      for (const channel of [...channels, ...channels]) await plain.publish(channel, 'v2 something');
      await eventually(() => waiter.logger.matching(/another version of this library/).length > 0);
      await held.release();
      await (await waiting).release();
      expect(waiter.logger.matching(/another version of this library/)).toHaveLength(channels.length);
    });

    it('empty the first level, because any value may have changed', async () => {
      await using app = await openCache({ redis: server.url, cache: { l1: { ttl: '1h' } } });
      await app.cache.getOrSet('key', () => 'old');
      expect(app.cache.stats().firstLevelSize).toBe(1);
      await plain.publish('cache:bus', 'v2 something');
      await eventually(() => app.cache.stats().firstLevelSize === 0);
      expect(app.logger.matching(/another version of this library/)).toHaveLength(1);
    });
  });

  describe('a value in an envelope of another version', () => {
    const LATER_VALUE = Buffer.concat([Buffer.from([2, 64]), Buffer.from('zzzzzzzz\n"later"')]);

    it('is absent for reads, and replaced by what they load', async () => {
      await using app = await openCache({ redis: server.url });
      await plain.set('cache:key', LATER_VALUE, 'PX', 60_000);
      expect(await app.cache.inspect('key')).toMatchObject({ state: 'unreadable' });
      expect(await app.cache.get('key')).toBeUndefined();
      expect(await app.cache.getOrSet('key', () => 'loaded')).toBe('loaded');
      expect(await app.cache.getOrSet('key', () => 'again')).toBe('loaded');
    });

    it('is deleted when it is expired softly', async () => {
      await using app = await openCache({ redis: server.url });
      await plain.set('cache:key', LATER_VALUE, 'PX', 60_000);
      await app.cache.expire('key', { soft: true });
      expect(await plain.exists('cache:key')).toBe(0);
    });
  });
});

describe('the channel for messages', () => {
  let server: RedisServer;
  let admin: Redis;
  beforeAll(async () => {
    server = await startRedisServer();
    admin = new Redis(server.url);
  });
  afterAll(async () => {
    admin.disconnect();
    await server.stop();
  });

  async function subscribers(): Promise<number> {
    return ((await admin.call('PUBSUB', 'CHANNELS', 'lock:process:*')) as string[]).length;
  }

  it('is made again on a client that does not reconnect, its loss and its return are logged once, and waiters are handed the lock', async () => {
    const clients = [1, 2].map(() => new Redis(server.url, { retryStrategy: () => null }));
    await using holder = await startLockApp({ redis: clients[0] as Redis, cache: false });
    await using waiter = await startLockApp({ redis: clients[1] as Redis, cache: false });
    const contend = async () => {
      const held = await holder.locks.acquire('hot', { order: 'fifo' });
      const waiting = waiter.locks.acquire('hot', { order: 'fifo', wait: 10_000 });
      await eventually(async () => (await holder.locks.inspect('hot'))?.waiting === 1);
      await held.release();
      await (await waiting).release();
    };
    await contend();
    const logged = /messages of the locks (do not arrive|arrive again)/;
    await eventually(async () => (await subscribers()) > 0);
    await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    // The loggers of all applications of one process are the last one's.
    await eventually(
      () => waiter.logger.matching(logged).length > 0 && waiter.logger.details.some((line) => logged.test(line)),
    );
    const lines = waiter.logger.matching(logged);
    expect(lines.filter((line) => line.includes('do not arrive'))).toHaveLength(1);
    expect(lines[0]).toContain(`Redis at 127.0.0.1:${server.port}`);
    expect(await eventually(subscribers)).toBeGreaterThan(0);
    for (let round = 0; round < 20; round++) await contend();
    for (const client of clients) client.disconnect();
  });

  describe('without the permission for the channel', () => {
    it('says so once with the remedy, serves waiters all the same, and frees by force', async () => {
      await admin.call('ACL', 'SETUSER', 'mute', 'reset', 'on', '>pw', '~*', '+@all', 'resetchannels');
      const redis = { host: '127.0.0.1', port: server.port, username: 'mute', password: 'pw' };
      await using one = await startLockApp({ redis, cache: false });
      await using two = await startLockApp({ redis, cache: false });
      const held = await one.locks.acquire('muted');
      const waiting = two.locks.acquire('muted', { wait: 10_000 });
      await eventually(async () => (await one.locks.inspect('muted'))?.waiting === 1);
      expect(await two.locks.forceRelease('muted')).toBe(true);
      await (await waiting).release();
      await expect(held.release()).rejects.toMatchObject({ code: 'LOCK_LOST' });
      const told = await eventually(() => {
        const lines = two.logger.matching(/NOPERM/);
        return lines.length > 0 && lines;
      });
      expect(told).not.toHaveLength(0);
    });
  });

  it('leaves no rejection unhandled when the application ends while its connection for messages subscribes again', async () => {
    const rejections: unknown[] = [];
    const remember = (reason: unknown) => rejections.push(reason);
    process.on('unhandledRejection', remember);
    const proxy = await FaultProxy.start(server.port);
    const redis = { host: '127.0.0.1', port: proxy.port };
    // A reconnect takes 50 ms, and each of its answers 50 ms more: at some of these times SUBSCRIBE is unanswered.
    for (let until = 20; until <= 300; until += 20) {
      const app = await openCache({ redis });
      proxy.slow({ reply: 50 });
      proxy.reset();
      await sleep(until);
      await app.close();
      proxy.heal();
    }
    await sleep(50);
    await proxy.stop();
    process.off('unhandledRejection', remember);
    expect(rejections).toEqual([]);
  });
});
