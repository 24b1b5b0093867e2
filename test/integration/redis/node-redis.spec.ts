import { createClient } from '@redis/client';
import * as version5 from 'redis-client-5';
import { LockBackendError, redis } from 'nest-redis-lock';
import { startLockApp } from '../../support/lock-app.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';

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
    const { locks, close } = await startLockApp({ redis: create(server.url) });
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
    const { locks, close } = await startLockApp({ backend });
    await expect(locks.withLock('refused', { wait: 0 }, async () => {})).rejects.toThrow(message);
    await close();
    client.destroy();
  });

  it.each(['TRYAGAIN', 'CLUSTERDOWN', 'LOADING', 'MASTERDOWN', 'ASK', 'MOVED'])(
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
