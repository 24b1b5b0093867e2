import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import type { StrategyResult } from '../../sample-app/demo/verdict.js';
import { descendants } from '../support/descendants.js';
import { eventually } from '../support/eventually.js';
import { isRunning } from '../support/is-running.js';
import { startShopServers, type ShopServers } from '../support/shop.js';

const PROGRAM = fileURLToPath(new URL('../../dist-sample/demo/main.js', import.meta.url));

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

/** PostgreSQL, which does not run as root, must get into it. */
function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'demo-faults-'));
  chmodSync(folder, 0o755);
  return folder;
}

interface Ended {
  code: number | null;
  output: string;
  results: StrategyResult[];
  verdict: string;
}

class Demo {
  output = '';
  readonly ended: Promise<Ended>;
  private readonly child: ChildProcess;

  /** Uses the servers of this test by default. */
  constructor(args: string[], env: Record<string, string> = {}) {
    const given = { REDIS_URL: servers.redis.url, DATABASE_URL: servers.postgres.url };
    this.child = spawn(process.execPath, [PROGRAM, '--no-cache-reads', '--no-primitives', '--json', ...args], {
      env: { ...process.env, ...given, ...env },
    });
    demos.push(this);
    let json = '';
    this.child.stdout?.on('data', (data: Buffer) => (json += data.toString()));
    this.child.stderr?.on('data', (data: Buffer) => (this.output += data.toString()));
    this.ended = new Promise((resolve) =>
      this.child.once('close', (code) => {
        const result = (json === '' ? { results: [], verdict: '' } : JSON.parse(json)) as Omit<
          Ended,
          'code' | 'output'
        >;
        resolve({ ...result, code, output: this.output });
      }),
    );
  }

  get pid(): number {
    return this.child.pid as number;
  }

  async shopsAre(count: number): Promise<number[]> {
    return eventually(
      async () => {
        const pids = await shopsBelow(this.pid);
        return pids.length === count ? pids : undefined;
      },
      { within: 120_000, every: 50 },
    );
  }

  signal(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }
}

async function shopsBelow(pid: number): Promise<number[]> {
  const below = await descendants(pid);
  const { stdout } = await promisify(execFile)('ps', ['-eo', 'pid=,args=']);
  const shops = stdout.split('\n').filter((line) => line.includes('dist-sample/shop/main.js'));
  return shops.map((line) => Number.parseInt(line, 10)).filter((each) => below.includes(each));
}

it.each(['kill', 'freeze'])(
  'completes the sale amid the fault %s, shows what it cost, and leaves nothing in a given Redis, nor in the temporary folder',
  async (fault) => {
    const folder = newFolder();
    const demo = new Demo(['--fault', fault, '--strategy', 'lock,atomic'], { TMPDIR: folder });
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
  const demo = new Demo(['--strategy', 'lock,atomic', '--orders', '5000', '--stock', '5000']);
  const [victim] = await demo.shopsAre(3);
  const client = new Redis(servers.redis.url);
  await eventually(async () => (await client.keys('nest_redis_lock_demo_*teapot-lock*')).length > 0, {
    within: 100_000,
  });
  client.disconnect();
  process.kill(victim as number, 'SIGKILL');
  const { code, verdict } = await demo.ended;
  expect(code).toBe(1);
  expect(verdict).toMatch(/^FAILED: lock: \d+ of 5000 orders failed \(.*ECONN.*stayed unsold/);
  expect(verdict).toContain(`the demo ended after lock, because process ${victim} of the shop is gone`);
}, 240_000);

it('says at once where a given Redis does not answer', async () => {
  const { code, output } = await new Demo([], { REDIS_URL: 'redis://127.0.0.1:1' }).ended;
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

it.each([
  [130, 'SIGINT'],
  [130, 'SIGINT', 'SIGINT'],
  [null, 'SIGKILL'],
] as const)(
  'exits with %j, and leaves nothing running nor in the temporary folder, after %s %s',
  async (status: number | null, ...signals: (NodeJS.Signals | undefined)[]) => {
    const folder = newFolder();
    const demo = new Demo(['--orders', '100000'], { TMPDIR: folder, REDIS_URL: '', DATABASE_URL: '' });
    await demo.shopsAre(3);
    const below = await descendants(demo.pid);
    expect(below.length).toBeGreaterThanOrEqual(5);
    expect(readdirSync(folder).length).toBeGreaterThan(0);
    for (const [index, signal] of signals.entries()) {
      if (signal === undefined) break;
      if (index > 0) await eventually(() => demo.output.includes('Cleaning up'));
      demo.signal(signal);
    }
    expect((await demo.ended).code).toBe(status);
    await eventually(() => readdirSync(folder).length === 0 && !below.some(isRunning));
    rmSync(folder, { recursive: true });
  },
  180_000,
);
