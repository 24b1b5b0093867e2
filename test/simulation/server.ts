// A Redis of the world: the model with a clock of its own, and what may happen to it.

import type { Link } from './network.js';
import type { LuaBridge } from './redis/lua.js';
import type { Random } from './redis/random.js';
import { type Entry, RedisModel } from './redis/redis-model.js';
import type { SimulatedProcess } from './simulated-process.js';
import type { Swarm } from './swarm.js';
import { START, type World } from './world.js';

interface Loss {
  readonly time: number;
  /** The same by the clock of the server, in µs. */
  readonly micros: number;
  /** What was lost; `undefined`: of all keys. */
  readonly key: string | undefined;
}

export class Server {
  readonly model: RedisModel;
  /** When it lost data last, of all names or of some: until then grants may be given a second time. */
  readonly losses: Loss[] = [];
  /** Whether what the processes hold is at this server and nowhere else. */
  keepsAll = false;
  /** Those that a store refuses for good, where it can. */
  readonly refused = new Set<SimulatedProcess>();
  onAskedAgain: (process: SimulatedProcess) => void = () => {};
  private readonly rate: number;
  private step = 0;

  constructor(
    readonly world: World,
    readonly swarm: Swarm,
    readonly lua: LuaBridge,
    readonly name = 'redis',
    readonly links = new Set<Link>(),
  ) {
    this.rate = 1 + world.stream(`${name} chance`).pick([-1, 0, 1]) * swarm.drift;
    this.model = new RedisModel({ micros: () => this.micros, lua });
  }

  /** It may be set back, which only lengthens leases; set forward, it would end them. */
  private get micros(): number {
    return Math.floor((START + this.step + this.world.now * this.rate) * 1_000);
  }

  /** Its clock in whole ms. */
  get now(): number {
    return Math.floor(this.micros / 1_000);
  }

  /** Whether the ticket has the lock, alone or as one of its readers; or `anyOf` its process, which asks by several. */
  hasLock(name: string, ticket: string, { anyOf }: { readonly anyOf: boolean }): boolean {
    const entry = this.model.data.get(`lock:{${name}}`);
    if (entry?.type !== 'string' || (entry.expires ?? Infinity) < this.now) return false;
    if (anyOf) return entry.value.includes(ticket.slice(0, ticket.indexOf(':')));
    if (entry.value === ticket) return true;
    const until = entry.value.split(` ${ticket}=`)[1];
    return until !== undefined && parseInt(until, 10) >= this.now;
  }

  /** Whether the ticket, which ends with their number, has permits of the semaphore. */
  hasPermits(name: string, ticket: string): boolean {
    const entry = this.model.data.get(`semaphore:{${name}}`);
    return entry?.type === 'zset' && (entry.value.get(ticket) ?? 0) >= this.now;
  }

  setClockBack(ms: number): void {
    this.step -= ms;
    this.world.note(this.name, `its clock goes back by ${ms.toFixed(3)} ms`);
  }

  giveMemory(): void {
    if (!this.model.full) return;
    this.model.full = false;
    this.world.note(this.name, 'has memory again');
  }

  letWrite(): void {
    if (!this.model.readOnly) return;
    this.model.readOnly = false;
    this.world.note(this.name, 'writes again');
  }

  flushScripts(): void {
    this.model.scripts.clear();
    this.world.note(this.name, 'forgets its scripts');
  }

  /** Restarts without data. */
  restartEmpty(random: Random): void {
    this.replace(new Map(), 'restarts without its data', random);
  }

  /** A replica that had not heard of the last `lag` ms takes over at that later time. */
  failOver(lag: number, random: Random): void {
    const { world, model } = this;
    const replica = new Map(Array.from(model.data, ([key, entry]) => [key, structuredClone(entry)]));
    world.at(world.now + lag, () => {
      this.replace(replica, `fails over to a replica that is ${lag.toFixed(1)} ms behind`, random);
    });
  }

  /** Out of memory: a key is removed. */
  evict(random: Random): void {
    const keys = [...this.model.data.keys()];
    if (keys.length === 0) return;
    const key = random.pick(keys);
    this.world.note(this.name, `evicts ${key}`);
    this.lost(key);
    this.model.data.delete(key);
  }

  private lost(key: string | undefined): void {
    this.losses.push({ time: this.world.now, micros: this.micros, key });
  }

  private replace(data: ReadonlyMap<string, Entry>, what: string, random: Random): void {
    const { model, world } = this;
    world.note(this.name, what);
    this.lost(undefined);
    model.data.clear();
    for (const [key, entry] of data) model.data.set(key, entry);
    model.scripts.clear();
    for (const link of this.links) link.cut({ answers: random.chance(0.5), atOnce: true });
  }
}
