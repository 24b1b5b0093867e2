// Reads of cached values, one after the other: where nothing fails, what was read is there for the next call, and is
// not loaded again. No read that begins after an invalidation was confirmed returns what was before it. A call that
// shares a read of its process began with that read: the process may not know of the invalidation yet.

import type { CacheService } from '../../../lib/cache/cache.service.js';
import type { ReadOptions } from '../../../lib/cache/options/cache-options.js';
import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import { sleep, type Workload } from './workload.js';

/** A row of the source. */
interface Row {
  version: number;
  /** The least version that a read may return, and since when. */
  confirmed: number;
  confirmedAt: number;
  /** How many invalidations have begun, and how many of them are under way. */
  invalidations: number;
  underWay: number;
  /** The count of invalidations at which its value was stored. */
  storedAt: number | undefined;
}

/** How many invalidations there were; `undefined` while one is under way. */
function quiet({ invalidations, underWay }: Row): number | undefined {
  return underWay === 0 ? invalidations : undefined;
}

function optionsOf(key: string, random: Random): ReadOptions {
  const tag = TAGS[key];
  const expect = random.pick(['hit', 'miss', undefined] as const);
  return {
    ttl: '5m',
    ...(tag !== undefined && { tags: [tag] }),
    ...(expect && { expect }),
    ...(random.chance(0.2) && { consistency: 'strong' }),
  };
}

/** Milliseconds: who waits for 5 s loads alone, and stores nothing. */
const LONGEST_LOAD = 3_000;

/** The tag of those that are invalidated by it. */
const TAGS: Readonly<Record<string, string>> = { r3: 'r' };

export class CachedReads implements Workload {
  entries = 0;
  private readonly rows = new Map<string, Row>();
  /** Of a process and a key: how many reads are under way, and what the first of them may return. */
  private readonly shared = new Map<string, { readonly least: number; readonly since: number; calls: number }>();

  constructor(private readonly schedule: Schedule) {}

  async call({ process, services }: Application, random: Random): Promise<void> {
    const { world, verdict } = this.schedule;
    const key = random.pick(['r1', 'r2', 'r3']);
    const row = this.rows.get(key) ?? {
      version: 1,
      confirmed: 1,
      confirmedAt: 0,
      invalidations: 0,
      underWay: 0,
      storedAt: undefined,
    };
    this.rows.set(key, row);
    try {
      const cache = await services.cache;
      if (random.chance(0.3)) return await this.write(process, cache, key, row);
      const who = process.name;
      const before = quiet(row);
      await this.read(who, cache, key, row, random);
      if (random.chance(0.5)) await this.readNext(who, cache, key, row, before);
    } catch (error) {
      const { name, message, stack } = error as Error;
      world.note(process.name, `fails with ${key} (${name})`);
      if (!/^Cache(Backend|Timeout)Error$/.test(name)) verdict.violated('ERROR', stack ?? message);
    }
  }

  private async write(process: Application['process'], cache: CacheService, key: string, row: Row): Promise<void> {
    const { world } = this.schedule;
    row.version += 1;
    row.invalidations += 1;
    row.underWay += 1;
    const written = row.version;
    const tag = TAGS[key];
    world.note(process.name, `WRITES version ${written} of ${key}`);
    try {
      if (tag === undefined) await cache.invalidate(key, { onRedisError: 'throw' });
      else await cache.deleteByTag(tag, { onRedisError: 'throw' });
    } finally {
      row.underWay -= 1;
    }
    world.note(process.name, `has invalidated ${key} for version ${written}`);
    world.at(process.time, () => {
      if (written > row.confirmed) Object.assign(row, { confirmed: written, confirmedAt: world.now });
    });
  }

  private async read(who: string, cache: CacheService, key: string, row: Row, random: Random): Promise<void> {
    const { world } = this.schedule;
    const options = optionsOf(key, random);
    const before = quiet(row);
    const isStored = before !== undefined && row.storedAt === before;
    const loader = () => {
      if (isStored && quiet(row) === before && this.nothingFails) {
        this.schedule.verdict.violated('LOADS', `${who} loads ${key}, whose value is stored`);
      }
      return this.load(who, key, row, random);
    };
    const strong = options.consistency === 'strong';
    const { value, least, since } = await this.sharing(who, key, row, strong, () =>
      cache.getOrSet(key, loader, options),
    );
    this.entries += 1;
    world.note(who, `READS version ${value} of ${key}`);
    if (strong || !this.schedule.swarm.firstLevel) this.judge(who, key, value, least, since);
  }

  /** `before`: what `quiet` said before the read. */
  private async readNext(
    who: string,
    cache: CacheService,
    key: string,
    row: Row,
    before: number | undefined,
  ): Promise<void> {
    const { confirmed, confirmedAt } = row;
    const value = await cache.get<number>(key);
    this.schedule.world.note(who, `FINDS version ${value} of ${key}`);
    const isBound = value !== undefined && !this.schedule.swarm.firstLevel;
    if (isBound) this.judge(who, key, value, confirmed, confirmedAt);
    if (before === undefined || quiet(row) !== before) return;
    row.storedAt = before;
    if (value === undefined && this.nothingFails) {
      this.schedule.verdict.violated('NEXT', `${who} does not find ${key}, which it has read before`);
    }
  }

  private get nothingFails(): boolean {
    return this.schedule.swarm.faultless;
  }

  private judge(who: string, key: string, value: number, least: number, since: number): void {
    // A replica that takes over brings back what was deleted at the primary.
    const broughtBack = this.schedule.server.losses.some(({ time }) => time >= since);
    if (value >= least || broughtBack) return;
    this.schedule.verdict.violated('STALE', `${who} reads version ${value} of ${key}; ${least} was confirmed before`);
  }

  private async sharing(who: string, key: string, row: Row, strong: boolean, read: () => Promise<number>) {
    const place = `${who} ${key}`;
    const own = { least: row.confirmed, since: row.confirmedAt, calls: 0 };
    // Where nothing fails, the message of the invalidation ends the sharing at once.
    const first = this.nothingFails ? own : (this.shared.get(place) ?? own);
    this.shared.set(place, first);
    first.calls += 1;
    try {
      const value = await read();
      const { least, since } = strong ? own : first;
      return { value, least, since };
    } finally {
      first.calls -= 1;
      if (first.calls === 0 && this.shared.get(place) === first) this.shared.delete(place);
    }
  }

  private async load(who: string, key: string, row: Row, random: Random): Promise<number> {
    const { version } = row;
    this.schedule.world.note(who, `loads version ${version} of ${key}`);
    const slow = random.chance(0.3);
    await sleep(slow ? random.between(0, LONGEST_LOAD) : random.exponential(random.pick([1, 100])));
    return version;
  }
}
