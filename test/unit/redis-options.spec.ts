import { Redis } from 'ioredis';
import { CacheConfigError, LockConfigError, memory, redis, type RedisConnection } from 'nest-redis-lock';
import { startLockApp } from '../support/lock-app.js';

/** As the clients of other libraries look. */
class NodeRedisClient {
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
  ['a node-redis client', new NodeRedisClient(), /looks like a node-redis client; give an ioredis client/],
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

describe.each(REFUSED)('given %s', (_what, value, message) => {
  const connection = value as RedisConnection;

  it.each([
    ['redis', () => startLockApp({ redis: connection }), LockConfigError],
    ['redis', async () => redis(connection), LockConfigError],
    ['cache.redis', () => startLockApp({ backend: memory(), cache: { redis: connection } }), CacheConfigError],
  ])('option "%s" refuses it, and shows no password', async (option, start, ConfigError) => {
    const error: unknown = await start().then(
      () => undefined,
      (caught: unknown) => caught,
    );
    expect(error).toBeInstanceOf(ConfigError);
    expect((error as Error).message).toMatch(message);
    expect((error as Error).message).toContain(`Option "${option}" `);
    expect((error as Error).message).not.toContain('secret');
  });
});

it.each([
  ['no option', {}],
  ['options', { host: '127.0.0.1', port: 1, username: 'app', password: 'pw', db: 1, keyPrefix: 'x' }],
  ['options whose values are not given', { host: undefined, port: 1 }],
  ['a port as text, as environments have it', { port: '1' as unknown as number }],
  ['options of TLS and Sentinel', { tls: {}, sentinels: [{ host: '127.0.0.1', port: 1 }], name: 'primary' }],
  ['every option that a client of ioredis names', { ...new Redis({ lazyConnect: true }).options, port: 1 }],
  ['a client', new Redis({ lazyConnect: true })],
])('takes %s', async (_what, connection) => {
  await redis(connection).close();
});
