import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { Redis } from 'ioredis';
import { CacheService, LockService } from 'nest-redis-lock';
import { eventually, freePort, moduleOf, start } from './kit.mjs';
import { cluster } from './managed-redis/src/cluster.js';
import { singleEndpoint } from './managed-redis/src/single-endpoint.js';

const folder = mkdtempSync(join(tmpdir(), 'managed-redis-'));
const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
const request = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
const subject = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'];
execFileSync('openssl', [...request, '-keyout', key, '-out', certificate, ...subject], { stdio: 'ignore' });
const ca = readFileSync(certificate, 'utf8');

/** A server that takes TLS only, and refuses these commands. */
async function service(refused, ...more) {
  const port = await freePort();
  const files = ['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', certificate];
  const tls = ['--port', '0', '--tls-port', String(port), '--tls-auth-clients', 'no', ...files];
  const renamed = refused.flatMap((command) => ['--rename-command', command, '']);
  const place = ['--bind', '127.0.0.1', '--dir', mkdtempSync(join(folder, 'data-')), '--save', ''];
  const args = [...tls, ...place, '--requirepass', 'p@ss', ...renamed, ...more];
  const child = spawn(process.env.REDIS_SERVER ?? 'redis-server', args);
  after(() => child.kill());
  const admin = new Redis({ host: '127.0.0.1', port, password: 'p@ss', tls: { ca }, retryStrategy: () => 50 });
  admin.on('error', () => {});
  after(() => admin.disconnect());
  await eventually(() => admin.ping().catch(() => false));
  return { port, admin };
}

const AWS = [
  'BGREWRITEAOF',
  'BGSAVE',
  'CONFIG',
  'DEBUG',
  'MIGRATE',
  'REPLICAOF',
  'SAVE',
  'SLAVEOF',
  'SHUTDOWN',
  'SYNC',
];
const GOOGLE = [
  'ACL',
  'BGSAVE',
  'CLIENT',
  'CLUSTER',
  'COMMAND',
  'CONFIG',
  'DEBUG',
  'LASTSAVE',
  'MONITOR',
  'OBJECT',
  'SAVE',
];
const urlOf = ({ port }) => `rediss://default:p%40ss@127.0.0.1:${port}`;
const failing = (module) => start(module, { logger: false, abortOnError: false });

async function expectWorks(app) {
  const [locks, cache] = [app.get(LockService), app.get(CacheService)];
  const held = await locks.acquire('a');
  const waiting = locks.acquire('a', { wait: '20s', reentrant: false });
  await eventually(async () => (await locks.inspect('a'))?.waiting !== undefined);
  await held.release();
  await (await waiting).release();
  assert.equal(await cache.getOrSet('b', async () => 1, { ttl: '1m' }), 1);
  await cache.invalidate('b');
  assert.equal(await cache.getOrSet('b', async () => 2, { ttl: '1m' }), 2);
}

test('a Cluster with TLS that refuses what ElastiCache refuses', async () => {
  const announced = ['--cluster-announce-ip', '127.0.0.1'];
  const server = await service(AWS, '--cluster-enabled', 'yes', '--tls-cluster', 'yes', ...announced);
  await server.admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
  await eventually(async () => /cluster_state:ok/.test(await server.admin.cluster('INFO')));
  const { client, module } = cluster(
    { host: '127.0.0.1', port: server.port },
    { username: 'default', password: 'p@ss' },
    ca,
  );
  after(() => client.disconnect());
  const app = await start(moduleOf({ imports: [module] }));
  await expectWorks(app);
  await (await app.get(LockService).acquire(['{shop}:a', '{shop}:b'])).release();
  await assert.rejects(app.get(LockService).acquire(['a', 'b']), { code: /LOCK_/ });
  await assert.rejects(failing(singleEndpoint(urlOf(server), ca)), /Cluster/);
});

test('a server with TLS that refuses what Memorystore refuses', async () => {
  const server = await service(GOOGLE);
  await expectWorks(await start(moduleOf({ imports: [singleEndpoint(urlOf(server), ca)] })));
  await assert.rejects(failing(singleEndpoint(urlOf(server))), /tls: \{ ca \}/);
});

test('a service without scripts is refused at the start', async () => {
  const server = await service(['EVAL', 'EVALSHA']);
  await assert.rejects(failing(singleEndpoint(urlOf(server), ca)), /eval/i);
});

test('a policy that evicts is warned of', async () => {
  const server = await service([], '--maxmemory', '100mb', '--maxmemory-policy', 'volatile-lru');
  const warnings = [];
  const logger = { log() {}, debug() {}, error() {}, fatal() {}, warn: (line) => warnings.push(line) };
  await start(moduleOf({ imports: [singleEndpoint(urlOf(server), ca)] }), { logger });
  assert.match(warnings.join('\n'), /volatile-lru/);
});
