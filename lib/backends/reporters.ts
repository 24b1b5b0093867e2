import type { Notice, StartRequest } from '../contracts/store.js';
import { listenToAbort } from '../timing/abort-listeners.js';

/** The modules that share a connection, and want to know what happens to it. */
export class Reporters {
  private readonly reporters = new Set<StartRequest['report']>();

  readonly report = (notice: Notice): void => {
    for (const report of this.reporters) report(notice);
  };

  /** Adds the module's reporter until the module stops. */
  add({ report, stopped }: StartRequest): void {
    if (stopped?.aborted) return;
    this.reporters.add(report);
    if (stopped) listenToAbort(stopped, () => this.reporters.delete(report));
  }

  get count(): number {
    return this.reporters.size;
  }
}
