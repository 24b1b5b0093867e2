import type { Warnings } from '../../errors/limited-log.js';
import type { HeldLock } from './held-lock.js';
import type { Lock } from '../lock.js';

interface Watched {
  readonly hold: HeldLock;
  /** The stack of the acquisition; `undefined` in production. */
  readonly origin: { stack?: string } | undefined;
}

/** How many frames of a stack are kept: enough to reach the caller's own code. */
const FRAMES = 8;

/**
 * Warns of a lock whose `Lock` was garbage-collected while it was held, because no code can release it any more, and
 * stops its renewal, so that its lease ends. Does nothing in an application that releases by name, which needs no
 * `Lock`.
 */
export class DroppedLocks {
  private readonly origins = process.env.NODE_ENV !== 'production';
  private releasesByName = false;
  private readonly registry = new FinalizationRegistry<Watched>((watched) => this.dropped(watched));

  constructor(
    private readonly logger: Warnings,
    private readonly label: string,
  ) {}

  /**
   * The stack of the running code, before its first `await`; `undefined` in production, where it would cost too much.
   */
  origin(): Watched['origin'] {
    if (!this.origins) return undefined;
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = FRAMES;
    const origin: { stack?: string } = {};
    Error.captureStackTrace(origin);
    Error.stackTraceLimit = stackTraceLimit;
    return origin;
  }

  watch(lock: Lock, hold: HeldLock, origin: Watched['origin']): void {
    this.registry.register(lock, { hold, origin });
  }

  /** Called when the application has released by name what an `acquire` got. */
  releasedByName(): void {
    this.releasesByName = true;
  }

  private dropped({ hold, origin }: Watched): void {
    if (this.releasesByName || hold.isReleased || hold.isLost) return;
    hold.orphan();
    const shown = hold.keys.map((name) => `"${name}"`).join(', ');
    const where = origin?.stack?.replace(/^.*\n/, '') ?? 'run it with NODE_ENV other than "production" to see where';
    this.logger.warn(
      `Lock of ${shown} (owner ${hold.owner}, ${this.label}) was dropped without release(): it is not renewed any more and ends in ` +
        `${Math.ceil(hold.remaining())} ms. Keep the Lock and release it in "finally", or use withLock. Acquired at:\n${where}`,
    );
  }
}
