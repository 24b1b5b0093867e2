import type { LoggerService } from '@nestjs/common';
import type { HeldLock } from './held-lock.js';
import type { Lock } from '../lock.js';

interface Watched {
  readonly hold: HeldLock;
  /** Has the stack of the acquisition; only outside of production. */
  readonly origin: { stack?: string } | undefined;
}

/** Enough to reach the caller's own code. */
const FRAMES = 8;

/**
 * Tells of a lock that is held while nothing refers to its `Lock` any more: nobody will release it. From then on it is
 * not renewed, so that its lease ends it. An application that releases by name keeps no `Lock`: there, that one is
 * dropped says nothing.
 */
export class DroppedLocks {
  private readonly origins = process.env.NODE_ENV !== 'production';
  private releasesByName = false;
  private readonly registry = new FinalizationRegistry<Watched>((watched) => this.dropped(watched));

  constructor(private readonly logger: Pick<LoggerService, 'warn'>) {}

  /**
   * The stack of the running code, to be called before it first awaits; nothing in production, where it costs too much.
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

  /** What an `acquire` got was released by its name. */
  releasedByName(): void {
    this.releasesByName = true;
  }

  private dropped({ hold, origin }: Watched): void {
    if (this.releasesByName || hold.isReleased || hold.isLost) return;
    hold.orphan();
    const shown = hold.keys.map((name) => `"${name}"`).join(', ');
    const where = origin?.stack?.replace(/^.*\n/, '') ?? 'run it with NODE_ENV other than "production" to see where';
    this.logger.warn(
      `Lock of ${shown} (owner ${hold.owner}) was dropped without release(): it is not renewed any more and ends in ` +
        `${Math.ceil(hold.remaining())} ms. Keep the Lock and release it in "finally", or use withLock. Acquired at:\n${where}`,
    );
  }
}
