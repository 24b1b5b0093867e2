// Takes and gives back hot locks with several callers, and gives evidence of every hold (see
// test/faults/chaos/evidence.ts). SIGTERM ends the callers, a second one the application; then nothing may keep the
// process alive.
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { LockLostError } from 'nest-redis-lock';
import { uniformInt } from 'pure-rand/distribution/uniformInt';
import { xoroshiro128plus } from 'pure-rand/generator/xoroshiro128plus';
import { optionsFor } from './contending-stores.mjs';
import { say, startLockApp } from './lock-app.mjs';

/** Contends with locks of this library, half of them by `withLock` and half of them by `acquire`. */
async function connectOurs({ backend, ports }) {
  const { app, locks } = await startLockApp(await optionsFor(backend, ports), { shutdownHooks: false });
  return {
    async run(name, { ttl, wait, scoped, mode }, body) {
      if (scoped) return locks.withLock(name, { ttl, wait, mode }, body);
      const lock = await locks.acquire(name, { ttl, wait, mode });
      try {
        return await body(lock);
      } finally {
        await lock.release();
      }
    },
    /** Takes the name to write, and reads on in `after` without giving it away in between. */
    async downgrade(name, { ttl, wait }, body, after) {
      let read;
      try {
        await locks.withLock(name, { ttl, wait }, async (lock) => {
          await body(lock);
          read = await locks.acquire(name, { ttl, wait, mode: 'read' });
        });
        await after(read);
      } finally {
        await read?.release();
      }
    },
    tellsOfLoss: (error) => error instanceof LockLostError,
    left: (names) => Promise.all(names.map((name) => locks.inspect(name))),
    close: () => app.close(),
  };
}

const RETRY = { retryDelay: 50, retryJitter: 25 };
/** For a release and an extension: one that is not ours any more must not be asked for again for ever. */
const RETRIES = 10;

/** Contends with locks of redlock, which has no fencing tokens: `token(name)` answers one in the order of entry. */
async function connectRedlock({ port, modules, token }) {
  const require = createRequire(join(modules, 'package.json'));
  const { Redis: Client } = require('ioredis');
  const { default: Redlock, ExecutionError } = require('redlock');
  const client = new Client({ host: '127.0.0.1', port });
  client.on('error', () => {});
  const redlock = new Redlock([client], { ...RETRY, retryCount: RETRIES });
  return {
    run: (name, { ttl, wait }, body) =>
      redlock.using(
        [name],
        ttl,
        { automaticExtensionThreshold: Math.floor(ttl / 3), retryCount: Math.ceil(wait / RETRY.retryDelay) },
        async (signal) => {
          const fencingToken = await token(name);
          return body({
            fencingToken,
            signal,
            get held() {
              return !signal.aborted;
            },
            // It tells its user of the loss, and not of the time that is left.
            remaining: () => 0,
          });
        },
      ),
    tellsOfLoss: (error) => error instanceof ExecutionError,
    left: async () => [],
    close: async () => client.disconnect(),
  };
}

const PEERS = { ours: connectOurs, redlock: connectRedlock };

const task = JSON.parse(process.argv[3]);
const { id, seed, peer, backend, ports, abrupt, modules, callers, names, ttl, wait, longHolds, reads, evidence } = task;
/** The longest lease (ms) of a session that is not asked, and a request of it that is not answered. */
const LEARNS_WITHIN = 10_000;
const witness = new Redis({ host: '127.0.0.1', port: evidence.port, retryStrategy: null });
// The parent process is gone.
const orphaned = () => process.exit(3);
witness.on('error', () => {}).on('close', orphaned);
const locks = await PEERS[peer]({
  port: Number(process.argv[2]),
  ports,
  backend,
  modules,
  token: (name) => witness.hincrby(evidence.tally, `token:${name}`, 1),
});

const stop = new AbortController();
let holds = 0;
const random = xoroshiro128plus(seed);
const whole = (least, most) => uniformInt(random, least, most);
const one = (values) => values[whole(0, values.length - 1)];

/** Usually none, sometimes a little, rarely long enough for a renewal and for a standstill to hit it. */
function holdTime(lease) {
  if (whole(1, longHolds) === 1) return whole(10, Math.round(lease * 1.5));
  return whole(1, Math.ceil(longHolds / 25)) === 1 ? whole(1, 5) : 0;
}

async function note(what) {
  await witness.evalsha(evidence.scripts.note, 2, evidence.tally, evidence.findings, what);
}

async function count(what) {
  await witness.hincrby(evidence.tally, what, 1);
}

/** One hold of a name, from the grant on. */
class Hold {
  refused = false;
  /** When (monotonic, ms) the lease ends at the earliest, as the lock said last. */
  trustedUntil = 0;
  holder = `${id}-${++holds}`;

  constructor(name, lock) {
    this.name = name;
    this.lock = lock;
    this.who = `${name}, token ${lock.fencingToken}, ${this.holder}: `;
  }

  async increment(waited, holdFor, heeded) {
    const counter = await this.step('read', Math.round(waited));
    if (this.refused) return;
    if (holdFor > 0 && !(await this.sleep(holdFor, heeded))) return;
    await this.step('write', Number(counter) + 1);
  }

  async look(holdFor, heeded) {
    const counter = await this.step('look', '');
    if (this.refused) return;
    if (holdFor > 0 && !(await this.sleep(holdFor, heeded))) return;
    await this.step('look', counter);
  }

  async step(script, argument) {
    const { name, lock, holder } = this;
    const before = lock.held;
    const keys = [evidence.tally, evidence.findings, name];
    const [accepted, value] = await witness.evalsha(
      evidence.scripts[script],
      keys.length,
      ...keys,
      lock.fencingToken,
      holder,
      argument,
    );
    this.trustedUntil = performance.now() + lock.remaining();
    const after = lock.held;
    if (!after && !lock.signal.aborted) await note(`${this.who}not held any more, but its signal is not aborted`);
    if (accepted === 1) return value;
    this.refused = true;
    if (before && after && !abrupt)
      await note(`${this.who}still held, but token ${value} was there before its ${script}`);
    else await count('fencedOff');
    if (abrupt) await this.learnsOfLoss();
    return undefined;
  }

  /** The lock has ended with its connection: this process must see that, or ask in time whether it still has it. */
  async learnsOfLoss() {
    const until = performance.now() + LEARNS_WITHIN;
    while (this.lock.held && performance.now() < until) await sleep(5);
    if (this.lock.held) await note(`${this.who}refused, and still held ${LEARNS_WITHIN} ms later`);
  }

  /** Answers whether to go on. */
  async sleep(ms, heeded) {
    try {
      await sleep(ms, undefined, heeded ? { signal: this.lock.signal } : {});
      return true;
    } catch {
      if (this.lock.held) await note(`${this.who}its signal was aborted while it was held`);
      return false;
    }
  }
}

async function cycle() {
  const name = one(names);
  const lease = whole(ttl.least, ttl.most);
  const scoped = whole(0, 1) === 0;
  const holdFor = holdTime(lease);
  const heeded = whole(0, 1) === 0;
  const mode = reads > 0 && whole(1, 100) <= reads ? 'read' : 'write';
  const readsOn = mode === 'write' && reads > 0 && whole(0, 3) === 0;
  const started = performance.now();
  let hold;
  const enter = (lock) => {
    const waited = performance.now() - started;
    hold = new Hold(name, lock);
    return mode === 'read' ? hold.look(holdFor, heeded) : hold.increment(waited, holdFor, heeded);
  };
  const readOn = (lock) => {
    hold = new Hold(name, lock);
    return hold.look(whole(0, 3), false);
  };
  try {
    if (readsOn) await locks.downgrade(name, { ttl: lease, wait }, enter, readOn);
    else await locks.run(name, { ttl: lease, wait, scoped, mode }, enter);
    if (hold.refused) await note(`${hold.who}refused, and not told of the loss`);
  } catch (error) {
    const after = performance.now();
    if (!locks.tellsOfLoss(error)) {
      await note(`${name}, after ${Math.round(after - started)} ms: ${error.stack}`);
    } else if (hold && after < hold.trustedUntil && !abrupt) {
      await note(`${hold.who}lost (${error.reason}) while the lease still had ${hold.trustedUntil - after} ms`);
    } else {
      await count('lost');
    }
  }
}

async function call() {
  while (!stop.signal.aborted) await cycle();
}

const drains = once(process, 'SIGTERM');
say('ready');
const calls = Array.from({ length: callers }, call);
await drains;
const told = once(process, 'SIGTERM');
stop.abort();
await Promise.all(calls);
say('drained');
await told;
const left = await locks.left(names);
await locks.close();
witness.off('close', orphaned).disconnect();
say('closed', left);
