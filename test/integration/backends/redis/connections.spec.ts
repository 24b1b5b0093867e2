import 'reflect-metadata';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { createClient, createClientPool, createCluster, createSentinel } from '@redis/client';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import {
  CacheConfigError,
  CacheService,
  IdempotencyService,
  LockBackendError,
  LockConfigError,
  LockService,
  memory,
  redis,
  type RedisConnection,
  RedisLockModule,
} from 'nest-redis-lock';
import { redlock } from 'nest-redis-lock/redlock';
import * as version5 from 'redis-client-5';
import { openRedisCacheStore } from '../../../../lib/backends/redis/cache/redis-cache-store.js';
import { eventually } from '../../../support/eventually.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { type RedisServer, startRedisServer } from '../../../support/servers/redis-server.js';
import { removeDirectory, temporaryDirectory } from '../../../support/servers/temporary-directory.js';

describe('over TLS, with a password', () => {
  let folder: string;
  let server: RedisServer;
  let port: number;
  let ca: Buffer;
  beforeAll(async () => {
    folder = temporaryDirectory();
    const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    const request = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
    const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'];
    execFileSync('openssl', [...request, '-keyout', key, '-out', certificate, ...subject], { stdio: 'ignore' });
    ca = readFileSync(certificate);
    port = await getPort();
    const files = ['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', certificate];
    const user = ['--user', 'shop', 'on', '>pw', '~*', '&*', '+@all'];
    server = await startRedisServer({
      args: ['--tls-port', String(port), '--tls-auth-clients', 'no', ...files, ...user],
    });
  });
  afterAll(async () => {
    await server.stop();
    removeDirectory(folder);
  });

  it('options with "tls" and the authority lock', async () => {
    const connection = { host: '127.0.0.1', port, username: 'shop', password: 'pw', tls: { ca } };
    await using app = await startLockApp({ redis: connection, failFast: true });
    const held = await app.locks.acquire('name');
    const waiting = app.locks.acquire('name', { wait: 10_000 });
    await held.release();
    await (await waiting).release();
    expect(app.logger.lines).toEqual([]);
  });

  it('a rediss:// URL without the authority is refused with what to give', async () => {
    const starting = startLockApp({ redis: `rediss://shop:pw@127.0.0.1:${port}`, failFast: true });
    await expect(starting).rejects.toThrow(/certificate is not trusted: give its authority as tls: \{ ca \}/);
  });
});

it('forRootAsync takes the URL of a service such as ConfigService', async () => {
  await using server = await startRedisServer();
  @Injectable()
  class Config {
    getOrThrow(name: string): string {
      if (name === 'REDIS_URL') return server.url;
      throw new TypeError(`no ${name}`);
    }
  }
  const settings = { module: class Settings {}, providers: [Config], exports: [Config] };
  const useFactory = (config: Config) => ({ redis: config.getOrThrow('REDIS_URL'), failFast: true });
  const locks = RedisLockModule.forRootAsync({ imports: [settings], inject: [Config], useFactory });
  const app = await NestFactory.createApplicationContext(
    { module: class Root {}, imports: [locks] },
    { logger: false },
  );
  expect(await app.get(LockService).withLock('name', async () => 'ran')).toBe('ran');
  await app.close();
});

it('a backend that two modules share serves the second one after the first has stopped', async () => {
  await using server = await startRedisServer();
  const admin = new Redis(server.url);
  const channels = async () => (await admin.pubsub('CHANNELS', 'lock:process:*-*')) as string[];
  const ours = async () => (await channels()).filter((channel) => !channel.includes('beat')).length;
  const shared = redis(server.url);
  const [first, second] = [await startLockApp({ backend: shared }), await startLockApp({ backend: shared })];
  const handOver = async ({ locks }: LockApp) => {
    const held = await locks.acquire('shared');
    const waiting = locks.acquire('shared', { order: 'fifo' });
    await eventually(async () => (await locks.inspect('shared'))?.waiting === 1);
    await held.release();
    await (await waiting).release();
  };
  await handOver(first);
  await handOver(second);
  await eventually(async () => (await ours()) === 2);
  await first.close();
  await eventually(async () => (await ours()) === 1);
  await handOver(second);
  await second.close();
  await eventually(async () => (await channels()).length === 0);
  await expect(shared.ping()).rejects.toThrow();
  admin.disconnect();
});

it.each(['options', 'a client', 'nodes of redlock()'])('serves with enableAutoPipelining, by %s', async (by) => {
  await using server = await startRedisServer();
  await using second = await startRedisServer();
  await using third = await startRedisServer();
  const to = ({ port }: RedisServer) => ({ host: '127.0.0.1', port, enableAutoPipelining: true });
  const options = to(server);
  const connection = by === 'a client' ? new Redis(options) : options;
  const l1 = { max: 10, ttl: 1_000, bus: 'tracking' } as const;
  const cache = { redis: connection, l1, defaults: { onRedisError: 'throw' } } as const;
  const locksOn = by.startsWith('nodes')
    ? { backend: redlock([server, second, third].map(to)) }
    : { redis: connection };
  const { app, locks, close } = await startLockApp({ ...locksOn, cache, failFast: true });
  const names = Array.from({ length: 30 }, (_, index) => `name:${index}`);
  await Promise.all(names.map((name) => locks.withLock(name, async () => app.get(CacheService).set(name, name))));
  const values = app.get(CacheService);
  expect(await Promise.all(names.map((name) => values.getOrSet(`${name}:loaded`, async () => name)))).toEqual(names);
  expect(await values.inspect('name:1')).toMatchObject({ state: 'fresh' });
  expect(await Promise.all(names.map((name) => values.getDel(name)))).toEqual(names);
  await values.sets.add('set', ['a', 'b'], { ttl: 10_000 });
  expect(await values.sets.members('set')).toHaveLength(2);
  expect(await values.deleteByPrefix('name')).toBe(30);
  if (!by.startsWith('nodes')) {
    const results = app.get(IdempotencyService);
    for (let run = 0; run < 2; run++) expect(await results.run('key', { ttl: '1h' }, async () => run)).toBe(0);
  }
  await close();
  if (connection instanceof Redis) connection.disconnect();
});

it('a module that stops leaves no listener on the client of a backend that another one uses', async () => {
  await using server = await startRedisServer();
  const client = new Redis(server.url);
  // ioredis adds a listener of its own until then.
  await once(client, 'ready');
  const shared = redis(client);
  const other = await startLockApp({ backend: shared });
  const before = client.listenerCount('ready');
  for (let i = 0; i < 3; i++) await (await startLockApp({ backend: shared })).close();
  expect(client.listenerCount('ready')).toBe(before);
  await other.close();
  expect(client.listenerCount('ready')).toBeLessThan(before);
  client.disconnect();
});

/** As the clients of other libraries look. */
class NodeRedis4Client {
  isOpen = false;
  sendCommand(): void {}
  evalSha(): void {}
}
class GlideClient {
  customCommand(): void {}
}
class UpstashRedis {
  evalsha(): void {}
}
class Settings {}

const REFUSED: [string, unknown, RegExp][] = [
  [
    'a client of node-redis 4',
    new NodeRedis4Client(),
    /looks like a node-redis client before version 5, .*; give an ioredis client or Cluster, a node-redis client/,
  ],
  [
    'a pool of node-redis',
    createClientPool(),
    /looks like a pool of node-redis, whose connections keep no order; give/,
  ],
  ['a client of GLIDE', new GlideClient(), /looks like a client of another library \(GlideClient\)/],
  ['a client of Upstash', new UpstashRedis(), /looks like a client of another library \(UpstashRedis\)/],
  ['{ url }', { url: 'redis://user:secret@redis.example' }, /unknown property "url"; pass the URL itself, as a string/],
  ['{ socket }', { socket: { host: 'redis.example' } }, /unknown property "socket"; ioredis takes host, port and tls/],
  ['{ Host }', { Host: 'redis.example' }, /unknown property "Host"; did you mean "host"\?/],
  ['{ hots }', { hots: 'redis.example' }, /unknown property "hots"; did you mean "host"\?/],
  ['{ sentinals }', { sentinals: [] }, /did you mean "sentinels"\?/],
  ['{ user }', { host: 'redis.example', user: 'app' }, /unknown property "user"; ioredis calls it "username"/],
  ['another word', { host: 'redis.example', flavour: 1 }, /unknown property "flavour"; give an ioredis client/],
  ['a URL object', new URL('redis://user:secret@redis.example'), /is a URL object; pass its href/],
  ['a URL as host', { host: 'redis://user:secret@redis.example' }, /has a URL as its host; pass the URL itself/],
  ['an empty host', { host: '' }, /has the host ""; give a host name/],
  ['a port that is no number', { port: 'abc' }, /has the port "abc"; give a number/],
  ['a promise', Promise.resolve({}), /is a promise; await it/],
  ['a list', [{ host: 'redis.example' }], /is a list; make the Cluster yourself/],
  ['an object without options', new Settings(), /is an instance of Settings/],
  ['a function', () => {}, /is .*; give an ioredis client/],
  ['null', null, /is null; give/],
  ['a URL with a bare %', 'redis://app:secret%zz@host', /is a URL that cannot be read; correct it/],
  ['a URL with a wrong port', 'redis://app:secret@host:99999', /is a URL that cannot be read; correct it/],
  ['a URL of something else', 'http://user:secret@host', /is "http:\/\/..."; give a URL/],
  ['a URL with one slash', 'redis:/:secret@host', /is "..."; give a URL/],
  ['an address with a password', 'user:secret@host', /is "..."; give a URL/],
  ['a URL with a slash in its password', 'redis://user:12/secret@host', /with "@" behind its host; give one whose/],
  ['a host with a password', { host: 'user:secret@host' }, /has "@" in its host; give user and password/],
];

function errorOf(connect: () => unknown): unknown {
  try {
    connect();
  } catch (error) {
    return error;
  }
  return undefined;
}

describe.each(REFUSED)('given %s', (_what, value, message) => {
  const connection = value as RedisConnection;

  it.each([
    ['redis', () => redis(connection), LockConfigError],
    ['cache.redis', () => openRedisCacheStore(connection, undefined), CacheConfigError],
  ])('option "%s" refuses it, and shows no password', (option, connect, ConfigError) => {
    const error = errorOf(connect);
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as Error).message).toMatch(message);
    expect((error as Error).message).toContain(`Option "${option}" `);
    expect((error as Error).message).not.toContain('secret');
  });
});

it.each([
  ['redis', { redis: { hots: 'redis.example' } as RedisConnection }],
  ['cache.redis', { backend: memory(), cache: { redis: { hots: 'redis.example' } as RedisConnection } }],
])('the module refuses a wrong option "%s" when it starts', async (option, options) => {
  await expect(startLockApp(options)).rejects.toThrow(`Option "${option}" has the unknown property "hots"`);
});

it.each([
  ['no option', {}],
  ['options', { host: '127.0.0.1', port: 1, username: 'app', password: 'pw', db: 1, keyPrefix: 'x' }],
  ['options whose values are not given', { host: undefined, port: 1 }],
  ['a port as text, as environments have it', { port: '1' as unknown as number }],
  ['options of TLS and Sentinel', { tls: {}, sentinels: [{ host: '127.0.0.1', port: 1 }], name: 'primary' }],
  ['every option that a client of ioredis names', { ...new Redis({ lazyConnect: true }).options, port: 1 }],
  ['a client', new Redis({ lazyConnect: true })],
  ['a client of node-redis', createClient()],
  ['a Cluster of node-redis', createCluster({ rootNodes: [{ url: 'redis://127.0.0.1:1' }] })],
  ['a Sentinel of node-redis', createSentinel({ name: 'main', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] })],
])('takes %s', async (_what, connection) => {
  await redis(connection).close();
});

describe('clients of node-redis', () => {
  /** How long (ms) an application that ends repeats the release of what it was refused. Refusals come at once. */
  const commandTimeout = 1_000;

  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  const versions = [
    ['5', (url: string) => version5.createClient({ url })],
    ['6', (url: string) => createClient({ url })],
  ] as const;

  describe.each(versions)('a client of node-redis %s', (_version, create) => {
    it('stays open and without our listeners when the application ends', async () => {
      const client = create(server.url);
      client.on('error', () => {});
      await client.connect();
      const { locks, close } = await startLockApp({ redis: client });
      await locks.withLock('left', async () => {});
      await close();
      expect(client.isOpen).toBe(true);
      expect(client.listenerCount('error')).toBe(1);
      expect(client.listenerCount('ready')).toBe(0);
      client.destroy();
    });

    it('that is not connected is named, with the remedy', async () => {
      const { locks, close } = await startLockApp({ redis: create(server.url), commandTimeout });
      const failed = locks.withLock('unconnected', { wait: 0 }, async () => {});
      await expect(failed).rejects.toThrow(LockBackendError);
      await expect(failed).rejects.toThrow(/its client is not open; await its connect\(\)/);
      await close();
    });

    it('may map replies to other types', async () => {
      const client = create(server.url);
      client.on('error', () => {});
      await client.connect();
      const { locks, close } = await startLockApp({ redis: client.withTypeMapping({ 36: Buffer, 58: String }) });
      expect(await locks.withLock('mapped', async ({ fencingToken }) => fencingToken)).toBeGreaterThan(0);
      await close();
      client.destroy();
    });

    it.each([
      ['READONLY', /READONLY.*it is a replica/],
      ['OOM', /OOM.*its memory is full/],
      ['NOPERM', /NOPERM.*grant the ACL user/],
      ['MISCONF', /MISCONF.*cannot write to its disk/],
    ])('reports an answer of %s with its remedy', async (code, message) => {
      const client = create(server.url);
      client.on('error', () => {});
      await client.connect();
      const answer = async () => Promise.reject(new Error(`${code} refused`));
      const backend = redis(Object.assign(client, { sendCommand: answer }));
      const { locks, close } = await startLockApp({ backend, commandTimeout });
      await expect(locks.withLock('refused', { wait: 0 }, async () => {})).rejects.toThrow(message);
      await close();
      client.destroy();
    });

    it.each(['TRYAGAIN', 'CLUSTERDOWN', 'LOADING', 'MASTERDOWN'])(
      'repeats a command that was answered %s',
      async (code) => {
        const client = create(server.url);
        client.on('error', () => {});
        await client.connect();
        const { locks, close } = await startLockApp({ redis: client });
        const send = client.sendCommand.bind(client);
        let refusals = 0;
        Object.assign(client, {
          sendCommand: (args: string[], options: object) => {
            if (!args[0]?.startsWith('EVAL') || refusals === 2) return send(args, options);
            refusals += 1;
            return Promise.reject(new Error(`${code} not now`));
          },
        });
        await locks.withLock(`repeated ${code}`, async () => {});
        expect(refusals).toBe(2);
        await close();
        client.destroy();
      },
    );
  });
});
