import { etcd } from 'nest-redis-lock/etcd';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp, type LockApp } from '../../support/lock-app.js';
import { startEtcdServer, type EtcdServer } from '../../support/servers/etcd-server.js';

let server: EtcdServer;
let proxy: FaultProxy;
let app: LockApp;

beforeAll(async () => {
  server = await startEtcdServer();
});
afterAll(() => server.stop());

beforeEach(async () => {
  proxy = await FaultProxy.start(Number(new URL(server.url).port));
  const backend = etcd({ endpoints: `http://127.0.0.1:${proxy.port}`, ttl: '9s' });
  app = await startLockApp({ backend, cache: false });
});
afterEach(async () => {
  await app.close();
  await proxy.stop();
});

it.each(['/v3/lease/grant', '/v3/kv/txn'])('sends %s again when its answer breaks off', async (path) => {
  const cut = proxy.cutReply(path);
  await app.locks.withLock('cut', { wait: 20_000 }, () => cut);
});

it('goes on renewing its lease when the answer to a renewal breaks off', async () => {
  const held = await app.locks.acquire('cut');
  await proxy.cutReply('/v3/lease/keepalive');
  // Resolves at the next renewal only.
  await proxy.cutReply('/v3/lease/keepalive');
  held.assertHeld();
  await held.release();
});
