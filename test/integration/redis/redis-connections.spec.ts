import 'reflect-metadata';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Injectable } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import getPort from 'get-port';
import { LockService, RedisLockModule } from 'nest-redis-lock';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { removeDirectory, temporaryDirectory } from '../../support/servers/temporary-directory.js';
import { startLockApp } from '../../support/lock-app.js';

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
    const redis = { host: '127.0.0.1', port, username: 'shop', password: 'pw', tls: { ca } };
    await using app = await startLockApp({ redis, failFast: true });
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
