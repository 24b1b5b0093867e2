// Callers of several processes that want one name again and again, without faults: how long they wait, who is served
// how often, and what share of the time the name is used. In simulated time, so that no machine is too slow for it.

import { Command } from 'commander';
import { installClock, inTask, runAs } from './clock.js';
import { COMPILED_LIBRARY, loadLibrary, type Library } from './library.js';
import { createLua, type LuaBridge } from './redis/lua.js';
import { Server } from './server.js';
import { SimulatedProcess } from './simulated-process.js';
import { drawSwarm, MESSAGE_TIME, NO_OTHER_FAULTS } from './swarm.js';
import { sleep } from './workloads/workload.js';
import { World } from './world.js';

interface Settings {
  readonly processes: number;
  readonly callers: number;
  /** Milliseconds of each body. */
  readonly hold: number;
  /** Milliseconds that a message takes on average. */
  readonly message: number;
  /** Milliseconds that are measured. */
  readonly lasts: number;
  readonly library: string;
}

const settings = new Command('npm run simulate:contention --')
  .option('--processes <number>', 'how many processes', Number, 40)
  .option('--callers <number>', 'how many callers each of them has', Number, 2)
  .option('--hold <ms>', 'how long each body takes', Number, 5)
  .option('--message <ms>', 'how long a message takes on average', Number, MESSAGE_TIME)
  .option('--lasts <ms>', 'how long it is measured', Number, 10_000)
  .option('--library <folder>', 'another compiled library', COMPILED_LIBRARY)
  .parse()
  .opts<Settings>();

installClock();
const library = await loadLibrary(settings.library);
const lua = await createLua();
console.log(JSON.stringify(await inTask(() => contend(settings, library, lua))));
process.stdout.write('', () => process.exit());

function contend(
  { processes, callers, hold, message, lasts }: Settings,
  { start, swarm: never }: Library,
  bridge: LuaBridge,
) {
  const world = new World(1);
  const drawn = drawSwarm(world.stream('swarm'), new Set(), { faultless: true });
  const swarm = { ...drawn, ...NO_OTHER_FAULTS, ...never(drawn), kinds: ['locks' as const], messageTime: message };
  const server = new Server(world, swarm, bridge);
  // Those that wait from the beginning have all been served once by then.
  const from = Math.max(2_000, 2 * processes * callers * hold);
  const until = from + lasts;
  const waits: number[] = [];
  const served = Array.from({ length: processes * callers }, () => 0);
  let used = 0;
  let commands = 0;
  const execute = server.model.execute.bind(server.model);
  server.model.execute = (...args) => {
    if (world.now >= from && world.now < until) commands += 1;
    return execute(...args);
  };
  const call = async (simulated: SimulatedProcess, locks: ReturnType<typeof start>['locks'], caller: number) => {
    while (world.now < until) {
      const asked = simulated.time;
      await locks.withLock('hot', { ttl: '10s', wait: Infinity }, async () => {
        const entered = simulated.time;
        await sleep(hold);
        if (entered < from || entered >= until) return;
        waits.push(entered - asked);
        used += simulated.time - entered;
        served[caller] = (served[caller] ?? 0) + 1;
      });
    }
  };
  for (let number = 0; number < processes; number++) {
    const simulated = new SimulatedProcess(world, swarm, `P${number + 1}`);
    const { locks } = runAs(simulated, () => start(simulated, server));
    for (let i = 0; i < callers; i++) runAs(simulated, () => void call(simulated, locks, number * callers + i));
  }
  world.run(until + 1_000);
  waits.sort((one, other) => one - other);
  const mean = used / waits.length;
  const round = processes * callers * mean;
  const p99 = waits[Math.floor(0.99 * waits.length)] ?? 0;
  const [sum, squares] = [waits.length, served.reduce((total, count) => total + count * count, 0)];
  return {
    /** Of the time: 1 for callers that pass the name on at once. */
    used: used / lasts,
    /** In ms, and beside one round of all callers. */
    p99,
    rounds: p99 / round,
    jain: (sum * sum) / (served.length * squares),
    commands: commands / sum,
  };
}
