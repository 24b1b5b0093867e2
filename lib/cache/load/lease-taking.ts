import type { LeaseAnswer, StoredData, TagVersion } from '../../contracts/cache-store.js';
import type { CacheBackendError } from '../../errors/cache-errors.js';
import type { CacheCore } from '../cache-core.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { LeasedLoad, releaseLease, tagMemory } from './leased-load.js';

type LeaseOutcome = LeasedLoad | Exclude<LeaseAnswer, { status: 'leased' }>;

interface LeaseWish {
  /** What the value begins with that is to be replaced, if there is one. */
  readonly seen: StoredData | undefined;
  readonly waits: boolean;
}

/** Asks for the lease, and for the versions of the tags: both are there before the loader begins. */
export function askForLease(
  core: CacheCore,
  key: string,
  settings: EntrySettings,
  wish: LeaseWish,
  answered: (outcome: LeaseOutcome) => void,
  failed: (error: CacheBackendError) => void,
): void {
  if (settings.tags.length > 0) return void takeLease(core, key, settings, wish).then(answered, failed);
  const token = core.nextToken();
  sendLease(
    core,
    key,
    settings,
    wish,
    token,
    (answer) => answered(outcomeOf(core, key, settings, token, answer, [])),
    failed,
  );
}

/** As `askForLease`. @throws CacheBackendError */
export async function takeLease(
  core: CacheCore,
  key: string,
  settings: EntrySettings,
  wish: LeaseWish,
): Promise<LeaseOutcome> {
  const token = core.nextToken();
  const lease = new Promise<LeaseAnswer>((resolve, reject) => {
    sendLease(core, key, settings, wish, token, resolve, reject);
  });
  const { tags } = settings;
  try {
    const [answer, versions] = await Promise.all([
      lease,
      tags.length === 0 ? [] : core.beginTags(key, tags, tagMemory(settings)),
    ]);
    return outcomeOf(core, key, settings, token, answer, versions);
  } catch (error) {
    releaseLease(core, key, token);
    throw error;
  }
}

function sendLease(
  core: CacheCore,
  key: string,
  { lease }: EntrySettings,
  { seen, waits }: LeaseWish,
  token: string,
  answered: (answer: LeaseAnswer) => void,
  failed: (error: CacheBackendError) => void,
): void {
  const { calls } = core;
  const request = { key, token, lease, refresh: seen !== undefined, seen, waits };
  // Granted after it was given up, the fence was not there when the loader began.
  const late = ({ status }: LeaseAnswer) => {
    if (status === 'leased') releaseLease(core, key, token);
  };
  calls.send('lease', key, () => calls.store.lease(request), answered, failed, late);
}

function outcomeOf(
  core: CacheCore,
  key: string,
  settings: EntrySettings,
  token: string,
  answer: LeaseAnswer,
  versions: readonly TagVersion[],
): LeaseOutcome {
  return answer.status === 'leased' ? new LeasedLoad(core, key, token, settings, answer.at, versions) : answer;
}
