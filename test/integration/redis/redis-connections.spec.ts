import 'reflect-metadata';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import getPort from 'get-port';
import { Redis } from 'ioredis';
import { LockService, redis, RedisLockModule } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { removeDirectory, temporaryDirectory } from '../../support/servers/temporary-directory.js';
import { eventually } from '../../support/eventually.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';

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

it('a module that stops leaves no listener on the client of a backend that another one uses', async () => {
  await using server = await startRedisServer();
  const client = new Redis(server.url);
  const shared = redis(client);
  const other = await startLockApp({ backend: shared });
  const before = client.listenerCount('ready');
  for (let i = 0; i < 3; i++) await (await startLockApp({ backend: shared })).close();
  expect(client.listenerCount('ready')).toBe(before);
  await other.close();
  expect(client.listenerCount('ready')).toBeLessThan(before);
  client.disconnect();
});
