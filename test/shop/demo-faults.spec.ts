import { readdirSync, rmSync } from 'node:fs';
import { Redis } from 'ioredis';
import { Demo, newFolder } from './demo-run.js';
import { eventually } from '../support/eventually.js';
import { startShopServers, type ShopServers } from '../support/shop.js';

let servers: ShopServers;
beforeAll(async () => {
  servers = await startShopServers();
}, 240_000);
const demos: Demo[] = [];
afterEach(async () => {
  // One that a failed test has left would disturb the next.
  for (const demo of demos.splice(0)) {
    demo.signal('SIGTERM');
    await demo.ended;
  }
});
afterAll(() => servers.stop());

/** Uses the servers of this test. */
function startDemo(args: string[], env: Record<string, string> = {}): Demo {
  const demo = new Demo(args, { REDIS_URL: servers.redis.url, DATABASE_URL: servers.postgres.url, ...env });
  demos.push(demo);
  return demo;
}

it.each(['kill', 'freeze'])(
  'completes the sale amid the fault %s, shows what it cost, and leaves nothing in a given Redis, nor in the temporary folder',
  async (fault) => {
    const folder = newFolder();
    const demo = startDemo(['--fault', fault, '--strategy', 'lock,atomic', '--orders', '300'], { TMPDIR: folder });
    const { code, results, verdict } = await demo.ended;
    expect(verdict).toBe('lock, atomic sold what was there and not one piece more.');
    expect(code).toBe(0);
    for (const result of results) {
      expect(result).toMatchObject({ accepted: 200, errors: 0, stockLeft: 0, struck: true });
      expect(result.invariants).toEqual({ I1: true, I2: true, I3: true });
      expect(result.resent).toBeGreaterThan(0);
      expect(result.longestWait).toBeGreaterThan(0);
      expect(result.standstill).toBeGreaterThan(0);
    }
    await leavesNothing(folder);
  },
  240_000,
);

it('fails where a process of the shop is killed that nobody asked for, and says so', async () => {
  const demo = startDemo(['--strategy', 'lock,atomic', '--orders', '1500', '--stock', '1500']);
  const [victim] = await demo.shopsAre(3);
  const client = new Redis(servers.redis.url);
  await eventually(async () => (await client.keys('nest_redis_lock_demo_*teapot-lock*')).length > 0, {
    within: 100_000,
  });
  client.disconnect();
  process.kill(victim as number, 'SIGKILL');
  const { code, verdict } = await demo.ended;
  expect(code).toBe(1);
  expect(verdict).toMatch(/^FAILED: lock: \d+ of 1500 orders failed \(.*ECONN.*stayed unsold/);
  expect(verdict).toContain(`the demo ended after lock, because process ${victim} of the shop is gone`);
}, 240_000);

it('says at once where a given Redis does not answer', async () => {
  const { code, output } = await startDemo([], { REDIS_URL: 'redis://127.0.0.1:1' }).ended;
  expect(code).toBe(1);
  expect(output).toMatch(/REDIS_URL: no answer from 127\.0\.0\.1:1 \(connect ECONNREFUSED.*Start Redis there/);
}, 240_000);

/** Neither in Redis, where the names of a demo begin so, nor in the folder, which is removed. */
async function leavesNothing(folder: string): Promise<void> {
  expect(readdirSync(folder)).toEqual([]);
  rmSync(folder, { recursive: true });
  const client = new Redis(servers.redis.url);
  expect(await client.keys('nest_redis_lock_demo_*')).toEqual([]);
  client.disconnect();
}
