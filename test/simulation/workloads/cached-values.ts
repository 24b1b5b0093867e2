// Cached values of a source that changes: no read that begins after an invalidation was confirmed returns what was
// before it. A call that shares a read of its process began with that read: the process may not know of the
// invalidation yet.

import type { Random } from '../redis/random.js';
import type { Application, Schedule } from '../schedule.js';
import { sleep, type Workload } from './workload.js';

/** A row of the source. */
interface Row {
  version: number;
  /** The least version that a read may return, and since when. */
  confirmed: number;
  confirmedAt: number;
}

export class CachedValues implements Workload {
  entries = 0;
  private readonly rows = new Map<string, Row>();
  /** Of a process and a key: how many reads are under way, and what the first of them may return. */
  private readonly shared = new Map<string, { readonly least: number; readonly since: number; calls: number }>();

  constructor(private readonly schedule: Schedule) {}

  async call({ process, services }: Application, random: Random): Promise<void> {
    const { world, verdict } = this.schedule;
    const key = random.pick(['v', 'w']);
    const row = this.rows.get(key) ?? { version: 1, confirmed: 1, confirmedAt: 0 };
    this.rows.set(key, row);
    try {
      const cache = await services.cache;
      if (random.chance(0.3)) {
        row.version += 1;
        const written = row.version;
        world.note(process.name, `WRITES version ${written} of ${key}`);
        await cache.invalidate(key, { onRedisError: 'throw' });
        world.note(process.name, `has invalidated ${key} for version ${written}`);
        world.at(process.time, () => {
          if (written > row.confirmed) Object.assign(row, { confirmed: written, confirmedAt: world.now });
        });
        return;
      }
      const { value, least, since } = await this.read(process.name, key, row, () =>
        cache.getOrSet(key, () => this.load(process.name, key, row, random), { ttl: '5m' }),
      );
      this.entries += 1;
      world.note(process.name, `READS version ${value} of ${key}`);
      // A replica that takes over brings back what was deleted at the primary.
      const broughtBack = this.schedule.server.losses.some(({ time }) => time >= since);
      if (value < least && !broughtBack) {
        verdict.violated('STALE', `${process.name} reads version ${value} of ${key}; ${least} was confirmed before`);
      }
    } catch (error) {
      const { name, message, stack } = error as Error;
      world.note(process.name, `fails with ${key} (${name})`);
      if (!/^Cache(Backend|Timeout)Error$/.test(name)) verdict.violated('ERROR', stack ?? message);
    }
  }

  private async read(who: string, key: string, row: Row, read: () => Promise<number>) {
    const place = `${who} ${key}`;
    const own = { least: row.confirmed, since: row.confirmedAt, calls: 0 };
    // Where nothing fails, the message of the invalidation ends the sharing at once.
    const first = this.schedule.swarm.faultless ? own : (this.shared.get(place) ?? own);
    this.shared.set(place, first);
    first.calls += 1;
    try {
      return { value: await read(), least: first.least, since: first.since };
    } finally {
      first.calls -= 1;
      if (first.calls === 0 && this.shared.get(place) === first) this.shared.delete(place);
    }
  }

  private async load(who: string, key: string, row: Row, random: Random): Promise<number> {
    const { version } = row;
    this.schedule.world.note(who, `loads version ${version} of ${key}`);
    await sleep(random.exponential(random.pick([1, 100, 1_500])));
    return version;
  }
}
