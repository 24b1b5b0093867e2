import { etcd } from 'nest-redis-lock/etcd';
import { askEtcd, keysOf } from '../../support/etcd-requests.js';
import { eventually } from '../../support/eventually.js';
import { startEtcdServer } from '../../support/servers/etcd-server.js';

it('opens one session where those who learn of the end of the last one ask at once', async () => {
  await using server = await startEtcdServer();
  const backend = etcd({ endpoints: server.url, ttl: '2s' });
  const acquire = (name: string) => backend.acquire({ names: [name], ticket: `process:${name}`, ttl: 10_000 });
  let again: ReturnType<typeof acquire> | undefined;
  try {
    await acquire('lost');
    backend.onLost?.(() => void (again ??= acquire('again')));
    // A freeze beyond the session: its end is noticed by the next call.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_100);
    expect(await acquire('next')).toMatchObject({ status: 'granted' });
    expect(await again).toMatchObject({ status: 'granted' });
    await eventually(async () => {
      const { leases = [] } = await askEtcd<{ leases?: object[] }>(server.url, '/v3/lease/leases', {});
      return leases.length === 1;
    });
    const locks = (await keysOf(server.url)).filter(({ key }) => key.includes('/lock/'));
    expect(locks.map(({ key }) => key.split('/').at(-2))).toEqual(['again', 'next']);
    expect(new Set(locks.map(({ lease }) => lease)).size).toBe(1);
  } finally {
    await backend.close();
  }
});
