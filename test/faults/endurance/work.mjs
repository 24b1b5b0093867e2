import { setTimeout as sleep } from 'node:timers/promises';
import { LockBackendError, LockLostError, LockTimeoutError } from 'nest-redis-lock';

const STEADY_CALLERS = 100;
const HOT_CALLERS = 12;
const HOT_NAMES = 20;
/** Errors that cut connections, short waits and aborts bring about. */
const EXPECTED = [LockTimeoutError, LockBackendError, LockLostError];

class Aborted extends Error {}

const hotName = () => `hot:${Math.floor(Math.random() ** 3 * HOT_NAMES)}`;

/** The ways in which callers fight for a name. */
const WAYS = [
  (locks, name, body) => {
    const abort = new AbortController();
    setTimeout(() => abort.abort(new Aborted()), Math.random() * 15);
    return locks.withLock(name, { signal: abort.signal }, body);
  },
  (locks, name, body) => locks.withLock(name, { wait: 1 + Math.floor(Math.random() * 30) }, body),
  (locks, name, body) => locks.withLock([name, hotName(), hotName()], { wait: 500 }, body),
  (locks, name, body) => locks.withLock(name, { order: 'fifo', wait: 50 }, body),
  async (locks, name) => (await locks.tryAcquire(name))?.release(),
  (locks, name, body) => locks.withLock(name, { ttl: 150, renew: false, wait: 500 }, body),
  (locks, name, body) => locks.withLock(name, { ttl: 300, wait: 800 }, body),
  (locks, name) => locks.withLock(name, { wait: 800 }, () => locks.withLock(hotName(), { wait: 20 }, async () => {})),
  // Never given back: the lease ends it.
  (locks, _name, _body, cycle) => locks.acquire(`dropped:${cycle % 1_000}`, { ttl: 200, renew: false, wait: 0 }),
];

/** Callers that take each of many names, beside others that fight for a few in every way there is. */
export class Work {
  cycles = 0;
  violations = 0;
  errors = new Map();
  unexpected = [];
  #inside = new Set();
  #turn = 0;

  constructor(locks, names) {
    this.locks = locks;
    this.names = names;
  }

  async run(cycles) {
    const end = this.cycles + cycles;
    const go = async (one) => {
      while (this.cycles < end) {
        this.cycles += 1;
        await this.#counted(one);
      }
    };
    await Promise.all([
      ...Array.from({ length: STEADY_CALLERS }, () => go(() => this.#steady())),
      ...Array.from({ length: HOT_CALLERS }, () => go(() => this.#contended())),
    ]);
  }

  async #counted(one) {
    try {
      await one();
    } catch (error) {
      const { name } = error.constructor;
      this.errors.set(name, (this.errors.get(name) ?? 0) + 1);
      if (error instanceof Aborted || EXPECTED.some((expected) => error instanceof expected)) return;
      if (this.unexpected.length < 5) this.unexpected.push(String(error));
    }
  }

  #steady() {
    const name = `order:${(this.cycles * 7_919) % this.names}`;
    return this.locks.withLock(name, { wait: 2_000 }, async () => {});
  }

  async #contended() {
    const name = hotName();
    const body = (lock) => this.#alone(name, lock);
    await WAYS[this.#turn++ % WAYS.length](this.locks, name, body, this.cycles);
  }

  /** A second caller that is inside while the first still trusts its lock is a violation. */
  async #alone(name, lock) {
    const other = [...this.#inside].find((each) => each.name === name && each.lock.held);
    if (other) this.violations += 1;
    const here = { name, lock };
    this.#inside.add(here);
    try {
      await sleep(1);
    } finally {
      this.#inside.delete(here);
    }
  }
}
