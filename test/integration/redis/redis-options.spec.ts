import { createClient, createClientPool, createCluster, createSentinel } from '@redis/client';
import { Redis } from 'ioredis';
import { CacheConfigError, LockConfigError, memory, redis, type RedisConnection } from 'nest-redis-lock';
import { openRedisCacheStore } from '../../../lib/backends/redis/cache/redis-cache-store.js';
import { startLockApp } from '../../support/lock-app.js';

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
  ['a URL of something else', 'http://user:secret@host', /is "http:\/\/\*\*\*@host"; give a URL/],
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
