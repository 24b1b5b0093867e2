// Cached values of a source that changes: no read that begins after an invalidation was confirmed returns what was
// before it. A call that shares a read of its process began with that read: the process may not know of the
// invalidation yet, unless it was its own. Some seconds later it joins no such read, as messages may be lost.

import type { CacheService } from '../../../lib/cache/cache.service.js';
import type { LoaderContext } from '../../../lib/cache/load/cache-loader.js';
import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import type { SimulatedProcess } from '../simulated-process.js';
import { ChangedRow } from './changed-row.js';
import { sleep, type Workload } from './workload.js';

/** How often each key is changed, and its tags, which the options name or the loader. */
const KEYS: Readonly<Record<string, { readonly changes: number; readonly tags: readonly string[] }>> = {
  v: { changes: 0.3, tags: [] },
  w: { changes: 0.3, tags: ['t'] },
  y: { changes: 0.1, tags: [] },
  x: { changes: 0, tags: [] },
};
/** Milliseconds after which a first level holds nothing that was changed elsewhere. */
const LONGEST_STALE = 2_300;
/** A barrier lasts for 10 s: a write that ends within this time (ms) is behind it. */
const BEHIND_BARRIER = 8_000;

const THROWS = { onRedisError: 'throw' } as const;

export class CachedValues implements Workload {
  entries = 0;
  private readonly rows = new Map<string, ChangedRow>();
  /** Of a process and a key: how many reads are under way, and what the first of them may return. */
  private readonly shared = new Map<string, { readonly least: number; readonly since: number; calls: number }>();

  constructor(private readonly schedule: Schedule) {}

  died(process: SimulatedProcess): void {
    for (const row of this.rows.values()) row.died(process);
  }

  async call(application: Application, random: Random): Promise<void> {
    const { world, verdict, swarm } = this.schedule;
    const { process, services } = application;
    const key = random.pick(Object.keys(KEYS));
    const row = this.rows.get(key) ?? new ChangedRow();
    this.rows.set(key, row);
    try {
      const cache = await services.cache;
      if (key === 'x') await this.findOutdated(process, cache, row, random);
      else if (random.chance(changesOf(key))) {
        await this.change(process, cache, key, row, random);
        if (random.chance(0.5)) await this.read(process, cache, key, row, random);
      } else if (random.chance(changesOf(key) / 3) && swarm.clockBack === 0) {
        await this.set(process, cache, key, row, random);
      } else await this.read(process, cache, key, row, random);
    } catch (error) {
      const { name, message, stack } = error as Error;
      world.note(process.name, `fails with ${key} (${name})`);
      if (!/^Cache(Backend|Timeout)Error$/.test(name)) verdict.violated('ERROR', stack ?? message);
    }
  }

  /** Writes a row, and has the cache forget what was before. */
  private async change(process: SimulatedProcess, cache: CacheService, key: string, row: ChangedRow, random: Random) {
    const { world } = this.schedule;
    const since = process.time;
    const confirm = (version: number) => {
      if (row.wasSetMeanwhile(process, since)) return;
      row.own.set(process, Math.max(version, row.own.get(process) ?? 0));
      world.at(process.time, () => this.confirm(row, version, since));
    };
    const write = () => {
      row.version += 1;
      world.note(process.name, `WRITES version ${row.version} of ${key}`);
      return row.version;
    };
    const commit = (version: number) => {
      if (process.time - since < BEHIND_BARRIER && !row.wasSetMeanwhile(process, since)) row.committed = version;
    };
    const { how, isConfirmed, run } = this.drawChange(key, random);
    const written = await run(cache, write, commit);
    world.note(process.name, `has changed ${key} for version ${written}: ${how}`);
    if (isConfirmed) confirm(written);
    else if (!row.wasSetMeanwhile(process, since)) row.own.set(process, Math.max(written, row.own.get(process) ?? 0));
  }

  private drawChange(key: string, random: Random) {
    const [tag] = tagsOf(key);
    const after =
      (forget: (cache: CacheService) => Promise<unknown>) =>
      async (cache: CacheService, write: () => number): Promise<number> => {
        const written = write();
        await forget(cache);
        return written;
      };
    const changes = [
      { how: 'invalidated', isConfirmed: true, run: after((cache) => cache.invalidate(key, THROWS)) },
      { how: 'invalidated, or will be', isConfirmed: false, run: after((cache) => cache.invalidate(key)) },
      { how: 'expired softly', isConfirmed: true, run: after((cache) => cache.expire(key, { soft: true, ...THROWS })) },
      { how: 'deleted by prefix', isConfirmed: true, run: after((cache) => cache.deleteByPrefix(key, THROWS)) },
      { how: 'deleted by tag', isConfirmed: true, run: after((cache) => cache.deleteByTag(tag ?? key, THROWS)) },
    ];
    // Often, so that one write overlaps another.
    if (random.chance(0.3)) return { how: 'mutated', isConfirmed: false, run: mutate };
    return random.pick(tag === undefined ? changes.filter(({ how }) => how !== 'deleted by tag') : changes);

    async function mutate(
      cache: CacheService,
      write: () => number,
      commit: (version: number) => void,
    ): Promise<number> {
      let written = 0;
      await cache.mutate(
        key,
        async () => {
          await sleep(random.exponential(random.pick([1, 500])));
          written = write();
          commit(written);
          await sleep(random.exponential(random.pick([1, 500])));
        },
        THROWS,
      );
      return written;
    }
  }

  /** Writes a row, and its value into the cache; changes it once more before that is done. */
  private async set(process: SimulatedProcess, cache: CacheService, key: string, row: ChangedRow, random: Random) {
    row.version += 1;
    const { version } = row;
    this.schedule.world.note(process.name, `SETS version ${version} of ${key}`);
    const ended = row.beginSet(process);
    const set = cache.set(key, version, { ttl: '5m', tags: tagsOf(key), ...THROWS }).finally(ended);
    const changed = random.chance(0.5) ? this.change(process, cache, key, row, random) : undefined;
    const outcomes = await Promise.allSettled([set, changed]);
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }

  private async read(process: SimulatedProcess, cache: CacheService, key: string, row: ChangedRow, random: Random) {
    const { world, verdict, server } = this.schedule;
    const strong = random.chance(0.4);
    const tags = tagsOf(key);
    const byLoader = random.chance(0.5);
    const loader = (context: LoaderContext) => {
      if (byLoader && tags.length > 0) context.setTags(tags);
      return this.load(process.name, key, row, random);
    };
    const expect = random.pick(['hit', 'miss', undefined] as const);
    const consistency = strong ? 'strong' : 'eventual';
    const options = { ttl: '5m', consistency, ...(expect && { expect }), ...(!byLoader && { tags }) } as const;
    const own = row.own.get(process) ?? 0;
    const { value, least, since } = await this.sharedRead(process, key, row, strong, () =>
      cache.getOrSet(key, loader, options),
    );
    this.entries += 1;
    world.note(process.name, `READS version ${value} of ${key}`);
    // A replica that takes over brings back what was deleted at the primary.
    const broughtBack = server.losses.some(({ time }) => time >= since);
    const expected = Math.max(least, own);
    if (value < expected && !broughtBack) {
      verdict.violated('STALE', `${process.name} reads version ${value} of ${key}; ${expected} was confirmed before`);
    }
  }

  private async sharedRead(
    process: SimulatedProcess,
    key: string,
    row: ChangedRow,
    strong: boolean,
    read: () => Promise<number>,
  ): Promise<{ readonly value: number; readonly least: number; readonly since: number }> {
    const { swarm } = this.schedule;
    const place = `${process.name} ${key}`;
    const known = row.confirmedFor(process, LONGEST_STALE);
    const bound = swarm.firstLevel && !strong ? known : row.last;
    const own = { least: bound.version, since: row.last.since, calls: 0 };
    // Where nothing fails, the message of the invalidation ends the sharing at once.
    const first = swarm.faultless ? own : (this.shared.get(place) ?? own);
    this.shared.set(place, first);
    first.calls += 1;
    try {
      if (strong) {
        // Nothing is stored behind a barrier: from the commit on, no read that begins finds what was before.
        const least = Math.max(own.least, row.committed);
        return { value: await read(), least, since: own.since };
      }
      // By then the process has noticed that it may have missed the message, and joins no read that began before.
      const least = Math.max(first.least, known.version);
      return { value: await read(), least, since: Math.min(first.since, known.since) };
    } finally {
      first.calls -= 1;
      if (first.calls === 0 && this.shared.get(place) === first) this.shared.delete(place);
    }
  }

  /** A load that stores nothing has found the stored value out of date: nobody reads that any more. */
  private async findOutdated(process: SimulatedProcess, cache: CacheService, row: ChangedRow, random: Random) {
    const { world, verdict, swarm } = this.schedule;
    const { version: least, since } = row.last;
    if (random.chance(0.5)) {
      row.version += 1;
      const loader = (context: LoaderContext) => {
        context.skip();
        return this.load(process.name, 'x', row, random);
      };
      const version = await cache.getOrSet('x', loader, { ttl: '5m', forceFresh: true });
      world.note(process.name, `has found version ${version} of x`);
      world.at(process.time, () => this.confirm(row, version, since));
      return;
    }
    const loader = () => this.load(process.name, 'x', row, random);
    const value = await cache.getOrSet('x', loader, { ttl: '5m', consistency: 'strong' });
    this.entries += 1;
    world.note(process.name, `READS version ${value} of x`);
    if (value < least && swarm.faultless) {
      verdict.violated('OUTDATED', `${process.name} reads version ${value} of x; a load had found ${least} before`);
    }
  }

  private confirm(row: ChangedRow, version: number, since: number): void {
    const { world, applications } = this.schedule;
    row.confirm(
      version,
      since,
      world.now,
      applications.map(({ process }) => process),
    );
  }

  private async load(who: string, key: string, row: ChangedRow, random: Random): Promise<number> {
    const { version } = row;
    this.schedule.world.note(who, `loads version ${version} of ${key}`);
    const slow = random.chance(0.3);
    await sleep(slow ? random.between(0, this.schedule.swarm.longestLoad) : random.exponential(random.pick([1, 100])));
    return version;
  }
}

function tagsOf(key: string): readonly string[] {
  return KEYS[key]?.tags ?? [];
}

function changesOf(key: string): number {
  return KEYS[key]?.changes ?? 0;
}
