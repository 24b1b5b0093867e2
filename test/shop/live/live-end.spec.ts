import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { descendants } from '../../support/descendants.js';
import { eventually } from '../../support/eventually.js';
import { isRunning } from '../../support/is-running.js';
import { LiveDemo } from '../../support/live-demo.js';
import { startRedisServer, type RedisServer } from '../../support/servers/redis-server.js';
import { Viewer } from './viewer.js';

let redis: RedisServer;
beforeAll(async () => {
  redis = await startRedisServer();
});
afterAll(() => redis.stop());

it('listens on this machine only, stops no Redis that was given, and ends everything at Ctrl-C in mid-sale', async () => {
  const demo = await LiveDemo.start(['--instances', '1'], { REDIS_URL: redis.url });
  const page = await Viewer.open(demo.url);
  const below = await descendants(demo.pid);
  expect(below.length).toBeGreaterThan(1);
  for (const address of addressesOfThisMachine())
    expect(await answers(address, Number(new URL(demo.url).port))).toBe(false);

  expect(page.state.redis).toBe('given');
  const refusal = await demo.post('/redis/stop');
  expect(refusal.status).toBe(409);
  expect(await refusal.json()).toMatchObject({ message: expect.stringContaining('unset REDIS_URL') });

  const settings = { strategy: 'lock', backend: 'redis', instances: 1, stock: 50_000, orders: 50_000, concurrency: 10 };
  expect((await demo.post('/sales', settings)).status).toBe(202);
  await page.until(() => (page.state.sale?.accepted ?? 0) > 0);
  expect(await demo.interrupt()).toBe(130);
  await page.ended;
  await eventually(() => !below.some(isRunning));
  expect(demo.output).not.toContain('Error');
});

function addressesOfThisMachine(): string[] {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  return all.filter(({ internal, family }) => !internal && family === 'IPv4').map(({ address }) => address);
}

function answers(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port }, () => resolve(true));
    socket.on('error', () => resolve(false)).on('connect', () => socket.destroy());
  });
}
