import type { CacheCore } from '../cache-core.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { takeLease } from '../load/lease-taking.js';
import { LeasedLoad } from '../load/leased-load.js';
import type { LoadRendezvous } from '../load/load-rendezvous.js';
import { beginningOf, decode, isFresh, judgedByTags, type Found } from './lookup.js';
import { revived } from './revival.js';

/**
 * What comes of a load that somebody else has begun: a value, or the lease after all. Or a write is under way; or the
 * load takes longer than the patience; or something is there that cannot be read.
 */
export type OtherLoadEnd = Found | LeasedLoad | 'barrier' | 'late' | 'unreadable';

/**
 * So often a value may be said to be there that is then not to be read: it expires, a replica lags behind, or it is no
 * value of ours.
 */
const MOST_VAIN_READS = 3;

/** Waits for it for `patience` ms. @throws CacheBackendError */
export async function endOfOtherLoad(
  core: CacheCore,
  key: string,
  settings: EntrySettings,
  present: Buffer | undefined,
  patience: number,
  rendezvous: LoadRendezvous | undefined,
): Promise<OtherLoadEnd> {
  const deadline = performance.now() + patience;
  const wait = core.waiters.expect(key);
  try {
    let vainReads = 0;
    for (let seen = present && beginningOf(present); ;) {
      // Asked again where it was busy before: its end may have been told before this one listened.
      const answer = await takeLease(core, key, settings, { seen, waits: patience > 0 });
      if (answer instanceof LeasedLoad) return answer;
      if (answer.status === 'barrier') return 'barrier';
      if (answer.status === 'busy') {
        const left = deadline - performance.now();
        if (left <= 0) return 'late';
        core.counters.waits += 1;
        rendezvous?.waits();
        await wait.untilWoken(Math.min(left, answer.remaining + 1));
        rendezvous?.resumes();
      } else {
        if (vainReads >= MOST_VAIN_READS) return 'unreadable';
        if (vainReads > 0) await wait.untilWoken(Infinity);
        vainReads += 1;
      }
      if (settings.forceFresh) continue;
      const data = await core.calls.run('read', key, () => core.calls.store.read(key));
      const stored = decode(core, key, data);
      const found = stored && isFresh(stored) ? await judgedByTags(core, key, stored, settings.tags) : undefined;
      if (found && isFresh(found)) {
        const made = settings.revive && (await revived(core, key, settings.revive, found.value));
        if (made || !settings.revive) return { ...found, revived: made };
      }
      seen = data === null ? undefined : beginningOf(data);
    }
  } finally {
    wait.end();
  }
}
