import type { Warnings } from '../../errors/limited-log.js';
import type { StoreCalls } from '../store/store-calls.js';
import type { Invalidations, InvalidateSettings } from './invalidations.js';

/** How long (ms) a barrier outlives a writer that died. Renewed every third of it. */
const WRITE_BARRIER = 10_000;

/** Runs writes behind a barrier: nothing is stored under their keys meanwhile. */
export class Mutations {
  constructor(
    private readonly calls: StoreCalls,
    private readonly invalidations: Invalidations,
    private readonly warnings: Warnings,
    private readonly nextToken: () => string,
  ) {}

  /**
   * Deletes the keys before and after the write. Should this process die in between, nothing old is left, and loads
   * store nothing until the barrier ends.
   */
  async run<T>(
    keys: readonly string[],
    write: () => Promise<T>,
    { barrier, failOpen }: InvalidateSettings,
  ): Promise<T> {
    const { invalidations } = this;
    const token = this.nextToken();
    const after = barrier > 0 ? { barrier: { token: this.nextToken(), ttl: barrier } } : {};
    try {
      await invalidations.deleteEach(keys, (key) => ({ key, barrier: { token, ttl: WRITE_BARRIER } }), failOpen);
    } catch (error) {
      await invalidations.deleteEach(keys, (key) => ({ key, lift: token }), true);
      throw error;
    }
    const renewal = setInterval(() => this.renewBarriers(keys, token), WRITE_BARRIER / 3).unref();
    try {
      return await write();
    } finally {
      clearInterval(renewal);
      // Also after an error: a write that failed may have been carried out.
      await invalidations.deleteEach(keys, (key) => ({ key, lift: token, ...after }), true);
    }
  }

  private renewBarriers(keys: readonly string[], token: string): void {
    const { calls, warnings } = this;
    const ended = (key: string) =>
      `The barrier of "${key}" ended before its write did: values that were loaded since are deleted after the write`;
    for (const key of keys) {
      calls.send(
        'renewal of the barrier',
        key,
        () => calls.store.renewBarrier({ key, token, ttl: WRITE_BARRIER }),
        (renewed) => !renewed && warnings.warn(ended(key)),
        () => {},
      );
    }
  }
}
