import { Redis } from 'ioredis';
import {
  IdempotencyConflictError,
  IdempotencyRunningError,
  IdempotencyService,
  redis,
  ScheduledJobs,
} from 'nest-redis-lock';
import { Gate } from '../../../support/gate.js';
import { type LockApp, startLockApp } from '../../../support/lock-app.js';
import { server, startRedis } from '../../../support/one-redis.js';
import { startRedisCluster, type RedisCluster } from '../../../support/servers/redis-cluster.js';

type Client = Redis | ReturnType<RedisCluster['client']>;
type Send = Redis['sendCommand'];

/**
 * The commands that a client sends during a call, except that a script is sent once to each server as a whole. `get`:
 * also the MGET of one key, which every second read is.
 */
async function sentBy(client: Client, call: () => Promise<unknown>): Promise<string[]> {
  const send = client.sendCommand.bind(client) as Send;
  const sent: string[] = [];
  const counting: Send = (command, ...where) => {
    sent.push(command.name.toLowerCase().replace('mget', 'get'));
    return send(command, ...where);
  };
  Object.assign(client, { sendCommand: counting });
  await call();
  Object.assign(client, { sendCommand: send });
  return sent.filter((name) => name !== 'eval');
}

const TOLD = { atMostFor: '5m', atLeastFor: '1m' } as const;
const FREE = { atMostFor: '5m', atLeastFor: 0 } as const;
const failing = () => Promise.reject(new Error('no stock'));

const WORLDS = {
  'one Redis': async () => ({ client: () => new Redis(server.url), stop: async () => {} }),
  'a Redis Cluster': startRedisCluster,
};

startRedis();

describe.each(Object.entries(WORLDS))('at %s', (_, start) => {
  let world: { client(): Client; stop(): Promise<void> };
  let clients: Client[];
  let [one, two]: LockApp[] = [];
  let [here, there]: IdempotencyService[] = [];
  let keys = 0;
  let key: string;

  beforeAll(async () => {
    world = await start();
    clients = [world.client(), world.client()];
    [one, two] = await Promise.all(clients.map((client) => startLockApp({ redis: client })));
    [here, there] = [one!.app.get(IdempotencyService), two!.app.get(IdempotencyService)];
    // The first call announces the process.
    await here!.run('warm', {}, async () => {});
  });
  beforeEach(() => {
    key = `key ${++keys}`;
  });
  afterAll(async () => {
    await Promise.all([one?.close(), two?.close()]);
    for (const client of clients) client.disconnect();
    await world.stop();
  });

  const sent = (call: () => Promise<unknown>) => sentBy(clients[0]!, call);

  describe('an idempotent call', () => {
    it('that is the first one sends a request before the method, and another one after it', async () => {
      const all = await sent(() => here!.run(key, { fingerprint: 1 }, async () => 'first'));
      expect(all).toEqual(['evalsha', 'evalsha']);
      expect(await there!.run(key, { fingerprint: 1 }, failing)).toBe('first');
    });

    it('that repeats another one sends one request, and one with another fingerprint, too', async () => {
      await there!.run(key, { fingerprint: 1 }, async () => 'first');
      expect(await sent(() => here!.run(key, { fingerprint: 1 }, failing))).toEqual(['evalsha']);
      const refused = async () =>
        expect(here!.run(key, { fingerprint: 2 }, failing)).rejects.toThrow(IdempotencyConflictError);
      expect(await sent(refused)).toEqual(['evalsha']);
    });

    it.each([true, false])('whose method throws sends two, whether its error is kept (%p)', async (kept) => {
      const failed = () => expect(here!.run(key, { keepErrors: () => kept }, failing)).rejects.toThrow('no stock');
      expect(await sent(failed)).toEqual(['evalsha', 'evalsha']);
    });

    it('reads alone where the last calls were repeats, and asks for the lock with its next request', async () => {
      await there!.run(key, {}, async () => 'first');
      for (let time = 1; time <= 5; time++) await here!.run(key, {}, failing);
      expect(await sent(() => here!.run(key, {}, failing))).toEqual(['get']);
      const another = () => here!.run(`another ${key}`, {}, async () => 'first');
      expect(await sent(another)).toEqual(['get', 'evalsha', 'evalsha']);
      for (let time = 1; time <= 5; time++) await here!.run(`${key}, ${time}`, {}, async () => 'first');
      expect(await sent(() => here!.run(`last ${key}`, {}, async () => 'first'))).toEqual(['evalsha', 'evalsha']);
    });

    it('that is refused while another one runs has asked for the lock, and read the result', async () => {
      const [began, gate] = [new Gate(), new Gate()];
      const running = there!.run(key, {}, async () => {
        began.open();
        await gate.opened;
      });
      await began.opened;
      const refused = () =>
        expect(here!.run(key, { onRunning: 'throw' }, failing)).rejects.toThrow(IdempotencyRunningError);
      expect(await sent(refused)).toEqual(['evalsha', 'get']);
      gate.open();
      await running;
    });
  });

  describe('a scheduled job', () => {
    it.each([
      ['keeps its name', TOLD],
      ['frees its name', FREE],
    ])('that %s sends a request before its run, and another one after it', async (_case, options) => {
      const jobs = one!.app.get(ScheduledJobs);
      expect(await sent(() => jobs.run(key, options, async () => {}))).toEqual(['evalsha', 'evalsha']);
      expect(await jobs.lastRun(key)).toMatchObject({ outcome: 'succeeded', endedAt: expect.any(Date) });
    });

    it('whose name is taken sends one', async () => {
      await two!.app.get(ScheduledJobs).run(key, TOLD, async () => {});
      expect(await sent(() => one!.app.get(ScheduledJobs).run(key, TOLD, failing))).toEqual(['evalsha']);
    });
  });
});

it('takes step after step where replicas must confirm a grant', async () => {
  const client = new Redis(server.url);
  await using app = await startLockApp({ backend: redis(client, { minReplicas: 1 }) });
  const run = app.app.get(IdempotencyService).run('replicated', { wait: 0 }, failing);
  await expect(run).rejects.toMatchObject({ code: 'LOCK_BACKEND' });
  client.disconnect();
});
