// The model against a real redis-server: the same random calls of the scripts, at the same time of the server, must
// give the same replies, the same messages, and the same keys with the same PTTL.
//   npm run simulate:compare -- --calls 100000

import { isDeepStrictEqual } from 'node:util';
import { Command } from 'commander';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../support/servers/redis-server.js';
import { clockStandsStill, setStillClock } from '../../support/servers/shifted-clock.js';
import { temporaryDirectory } from '../../support/servers/temporary-directory.js';
import { createLua } from './lua.js';
import { Random } from './random.js';
import { type Connection, RedisModel } from './redis-model.js';
import { ErrorReply, StatusReply } from './replies.js';
import { LOCK_SCRIPTS } from './scripts.js';

const { calls: asked, seed: first } = new Command('npm run simulate:compare --')
  .option('--calls <number>', 'how many commands', Number, 10_000)
  .option('--seed <number>', 'of the first sequence', Number, 1)
  .parse()
  .opts<{ calls: number; seed: number }>();

const STEPS = 60;
const PROCESSES = ['p', 'q', 'r'];
/** In µs. */
const START = Date.UTC(2030, 0, 1) * 1_000;
let micros = START;
const clock = `${temporaryDirectory()}/clock`;
const server = await startRedisServer({ env: clockStandsStill(clock, micros) });
const real = new Redis(server.port);
const listeners = PROCESSES.map(() => real.duplicate());
const heard: string[][][] = PROCESSES.map(() => []);
for (const [i, each] of listeners.entries()) each.on('message', (...message) => heard[i]?.push(message));
const lua = await createLua();

let calls = 0;
let same = true;
for (let seed = first; same && calls < asked; seed++) same = await runSequence(seed);
console.log(`${same ? 'SAME' : 'DIFFERENT'}: ${calls} calls`);
for (const each of [real, ...listeners]) each.disconnect();
await server.stop();
process.exitCode = same ? 0 : 1;

async function runSequence(seed: number): Promise<boolean> {
  const random = new Random(seed);
  await real.flushall();
  const model = new RedisModel({ micros: () => micros, lua });
  const said: string[][][] = PROCESSES.map(() => []);
  const connections = PROCESSES.map((_, i): Connection => ({
    push: ([kind, ...message]) => kind === 'message' && said[i]?.push(message.map(String)),
  }));
  const listen = async (i: number, on: boolean) => {
    const channel = `lock:process:${PROCESSES[i]}`;
    await (on ? listeners[i]?.subscribe(channel) : listeners[i]?.unsubscribe(channel));
    model.execute(connections[i] as Connection, [on ? 'SUBSCRIBE' : 'UNSUBSCRIBE', channel]);
  };
  for (const i of PROCESSES.keys()) await listen(i, random.chance(0.8));
  const tickets: string[] = [];
  for (let step = 0; step < STEPS && calls < asked; step++) {
    calls += 1;
    if (random.chance(0.6)) {
      micros += Math.floor(random.exponential(random.chance(0.1) ? 3e6 : 1.5e5));
      setStillClock(clock, micros);
    }
    if (random.chance(0.05)) await listen(random.below(PROCESSES.length), random.chance(0.6));
    const args = randomCommand(random, tickets);
    const replies = [plain(await sent(args)), plain(model.execute({ push: () => {} }, args))];
    await Promise.all(listeners.map((each) => each.ping()));
    const messages = [heard, said].map((all) => all.map((each) => each.splice(0)));
    for (const [what, a, b] of [
      ['reply', ...replies],
      ['messages', ...messages],
      ['keys', await dumpOfReal(), model.dump()],
    ]) {
      if (isDeepStrictEqual(a, b)) continue;
      const name = Object.entries(LOCK_SCRIPTS).find(([, { lua: text }]) => text === args[1])?.[0] ?? args[0];
      console.log(`seed ${seed}, step ${step}, ${name} ${JSON.stringify(args.slice(2))}: ${String(what)}`);
      console.log(`  redis-server ${JSON.stringify(a)}\n  model        ${JSON.stringify(b)}`);
      return false;
    }
  }
  return true;
}

function randomCommand(random: Random, tickets: string[]): string[] {
  const name = random.chance(0.8) ? 'a' : 'b';
  const lock = `lock:{${name}}`;
  const ticket = () => random.pick(tickets.slice(-6)) ?? 'p:1';
  const fresh = (reads: boolean) => {
    const made = `${random.pick(PROCESSES)}:${reads ? '0' : ''}${tickets.length + 1}`;
    tickets.push(made);
    return made;
  };
  const some = (reads: boolean) => (random.chance(0.5) ? fresh(reads) : ticket());
  const ms = () => String(1 + Math.floor(random.exponential(800)));
  const purpose = () => (random.chance(0.2) ? '' : `${ms()}:${name}`);
  const names = random.chance(0.8)
    ? [name]
    : Array.from({ length: 2 + random.below(2) }, () => random.pick(['a', 'b']));
  const run = (script: keyof typeof LOCK_SCRIPTS, of: readonly string[], ...args: string[]) => {
    const keys = keysOf(of);
    return ['EVAL', LOCK_SCRIPTS[script].lua, String(keys.length), ...keys, '1lock:process:', ...args];
  };
  const both = ['a', 'b'];
  switch (random.below(16)) {
    case 0:
    case 1:
    case 2:
      return run('acquireOrEnqueue', names, ...names.flatMap(() => [some(false), ms(), purpose()]));
    case 3:
    case 4:
      return run('readOrEnqueue', names, ...names.flatMap(() => [some(true), ms(), purpose()]));
    case 5:
    case 6:
      return run('beat', [name], ticket());
    case 7:
    case 8:
      return run('release', names, ...names.map(ticket));
    case 9:
      return run('requeue', [name], ticket(), fresh(false), `${ms()}:${name}`);
    case 10: {
      const keys = names.flatMap((each) => [`lock:{${each}}`, `lock:{${each}}:queue`]);
      const renewals = names.flatMap(() => [ticket(), ms(), '1']);
      return ['EVAL', LOCK_SCRIPTS.renew.lua, String(keys.length), ...keys, ...renewals];
    }
    case 11:
      return run('mint', [name], ticket(), random.chance(0.5) ? '0' : String(START + random.below(5e6)));
    case 12:
      return run('keep', random.chance(0.5) ? [name] : both, ticket(), ms());
    case 13:
      if (random.chance(0.5)) return run('acquireAll', both, some(false), ms(), '0');
      return run('readAll', both, some(true), ms(), '0');
    case 14:
      return random.chance(0.5) ? run('downgrade', [name], ticket(), ms()) : run('forceRelease', [name]);
    default:
      return random.pick([
        ['SET', lock, 'foreign', 'NX', 'PX', ms()],
        ['DEL', lock],
        ['PERSIST', lock],
        ['RPUSH', `${lock}:waiters`, 'foreign'],
        ['DEL', `${lock}:waiters`],
        ['EVAL', LOCK_SCRIPTS.releaseAlone.lua, '1', lock, ticket()],
        ['EVAL', LOCK_SCRIPTS.takeAlone.lua, '1', lock, ticket(), random.chance(0.5) ? '' : ms()],
      ]);
  }
}

function keysOf(names: readonly string[]): string[] {
  return names.flatMap((name) => ['', ':fence', ':queue', ':waiters'].map((end) => `lock:{${name}}${end}`));
}

async function sent([command = '', ...args]: readonly string[]): Promise<unknown> {
  try {
    return await real.call(command, ...args);
  } catch (error) {
    return new ErrorReply((error as Error).message);
  }
}

/** Only the kind of an error is compared. */
function plain(reply: unknown): unknown {
  if (reply instanceof ErrorReply) return { error: reply.message.split(' ')[0] };
  if (reply instanceof Error) return { error: reply.message.split(' ')[0] };
  if (reply instanceof StatusReply) return reply.text;
  return Array.isArray(reply) ? reply.map(plain) : reply;
}

async function dumpOfReal(): Promise<unknown[]> {
  const keys = (await real.keys('*')).toSorted();
  return Promise.all(
    keys.map(async (key) => {
      const type = await real.type(key);
      const value =
        type === 'hash'
          ? Object.entries(await real.hgetall(key)).toSorted(([one], [other]) => (one < other ? -1 : 1))
          : type === 'list'
            ? await real.lrange(key, 0, -1)
            : await real.get(key);
      return [key, type, value, await real.pttl(key)];
    }),
  );
}
