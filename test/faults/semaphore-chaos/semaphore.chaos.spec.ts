import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { SemaphoreService } from 'nest-redis-lock';
import { Child } from '../../support/child.js';
import { eventually } from '../../support/eventually.js';
import { FaultProxy } from '../../support/fault-proxy.js';
import { startLockApp } from '../../support/lock-app.js';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { Random } from '../chaos/random.js';
import { ENTER } from './evidence.lua.js';

const SEED = Number(process.env['CHAOS_SEED'] ?? 20_260);
/** How many holds of permits are shown before the end: CHAOS_CYCLES=100000 for a long run. */
const CYCLES = Number(process.env['CHAOS_CYCLES'] ?? 1_000);
const [CHILDREN, PERMITS, NAME] = [4, 5, 'hot'];
/** Long enough for every fault, and for a machine that is busy. */
const PATIENCE = 120_000;

it('never grants more permits than there are amid faults, and every caller gets its turn', async () => {
  await using server = await startRedisServer();
  await using witness = await startRedisServer();
  const [admin, evidence] = [new Redis(server.url), new Redis(witness.url)];
  const proxies = await Promise.all([FaultProxy.start(server.port), FaultProxy.start(server.port)]);
  const random = new Random(SEED);
  let recruits = 0;
  const recruit = (place: number): Child => {
    const id = (recruits += 1);
    const port = proxies[place]?.port ?? server.port;
    const task = { id, seed: SEED * 1_000_003 + id, evidence: witness.port, enter: ENTER };
    const work = { callers: 8, name: NAME, permits: PERMITS, wait: PATIENCE };
    return Child.start('permit-taker.mjs', [String(port), JSON.stringify({ ...task, ...work })]);
  };
  const children = Array.from({ length: CHILDREN }, (_, place) => recruit(place));
  const done: Record<string, number> = { kill: 0, stop: 0, reset: 0, clientKill: 0, pubsubKill: 0, flush: 0 };
  const faults: Record<string, (place: number) => Promise<unknown>> = {
    kill: async (place) => {
      await children[place]?.kill();
      children[place] = recruit(place);
      await children[place].says('ready', PATIENCE);
    },
    stop: async (place) => {
      children[place]?.signal('SIGSTOP');
      await sleep(random.whole(50, 2_000));
      children[place]?.signal('SIGCONT');
    },
    reset: async (place) => proxies[place % proxies.length]?.reset(),
    clientKill: () => admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes'),
    pubsubKill: () => admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub'),
    flush: () => admin.script('FLUSH'),
  };
  const cycles = async () => Number(await evidence.hget('tally', 'cycles'));
  const findings = () => evidence.lrange('findings', 0, 9);
  const withoutExpiry = async () => {
    const keys = await admin.keys('*');
    const left = await Promise.all(keys.map(async (key) => [key, await admin.pttl(key)] as const));
    return left.filter(([, pttl]) => pttl === -1);
  };
  try {
    await Promise.all(children.map((child) => child.says('ready', PATIENCE)));
    let planned: string[] = [];
    while ((await cycles()) < CYCLES || Object.values(done).includes(0)) {
      if (planned.length === 0) planned = random.shuffled(Object.keys(faults));
      const fault = planned.pop() as string;
      await faults[fault]?.(random.whole(0, CHILDREN - 1));
      done[fault] = (done[fault] ?? 0) + 1;
      // Somebody gets in again after each fault.
      const before = await cycles();
      await eventually(async () => (await cycles()) > before, { within: PATIENCE });
      expect(await withoutExpiry()).toEqual([]);
      expect(await findings()).toEqual([]);
      await sleep(random.whole(0, 300));
    }
    for (const child of children) child.signal('SIGTERM');
    await Promise.all(children.map((child) => child.says('closed', PATIENCE)));
    expect(await Promise.all(children.map(({ exited }) => exited))).toEqual(children.map(() => 0));
    expect(await findings()).toEqual([]);
    const { cycles: shown, lost = 0, late = 0 } = await evidence.hgetall('tally');
    console.info(`seed ${SEED}: ${shown} holds, ${lost} lost, ${late} late; ${JSON.stringify(done)}`);
    // All permits are back.
    await using app = await startLockApp({ redis: server.url, cache: false });
    const all = { permits: PERMITS, count: PERMITS, wait: 30_000 };
    await (await app.app.get(SemaphoreService).acquire(NAME, all)).release();
  } finally {
    await Promise.all(children.map((child) => child.kill()));
    await Promise.all(proxies.map((proxy) => proxy.stop()));
    for (const client of [admin, evidence]) client.disconnect();
  }
}, 3_600_000);
