import type { CacheStore } from '../contracts/cache-store.js';
import { CacheConfigError } from '../errors/cache-errors.js';
import type { LimitedLog } from '../errors/limited-log.js';
import type { CacheEngine } from './cache-engine.js';
import type { CacheOptions, CacheSettings } from './options/cache-options.js';
import { secondsTakenByModule } from './options/entry-settings.js';

/**
 * The cache of one module instance, if it has one. It subscribes to messages at start-up if the module has cache
 * options, otherwise at its first use: an application that only locks opens no connection for it.
 */
export class CacheRuntime {
  private booted = false;
  private started = false;
  private stopped = false;

  constructor(
    private readonly present: CacheEngine | undefined,
    private readonly logger: LimitedLog,
    private readonly given: CacheOptions | false | undefined,
  ) {}

  /** @throws CacheConfigError when the module has no cache */
  engine(): CacheEngine {
    if (this.present) {
      this.start();
      return this.present;
    }
    throw new CacheConfigError(
      'This application has no cache: give RedisLockModule the option "redis" or "cache: { redis }", and do not set "cache: false"',
    );
  }

  /** Every service of the runtime calls it, including those of namespaces. */
  boot(): void {
    if (this.booted) return;
    this.booted = true;
    for (const line of secondsTakenByModule(this.given || {})) this.logger.warn(line, line);
    if (this.given !== undefined) this.start();
  }

  /** The engine, once it listens to messages. */
  get inUse(): CacheEngine | undefined {
    return this.started ? this.present : undefined;
  }

  get isStopped(): boolean {
    return this.stopped;
  }

  async stop(): Promise<void> {
    this.started = true;
    try {
      await this.present?.stop();
    } finally {
      this.stopped = true;
    }
  }

  private start(): void {
    if (this.started) return;
    this.started = true;
    this.present?.start();
  }
}

/**
 * Loads the code of the cache, and of its first level if it has one: an application that only locks loads neither.
 */
export async function openCacheEngine(
  store: CacheStore,
  settings: CacheSettings,
  logger: LimitedLog,
): Promise<CacheEngine> {
  const [engine, firstLevel] = await Promise.all([
    import('./cache-engine.js'),
    settings.firstLevel && import('./values/first-level.js'),
  ]);
  return new engine.CacheEngine(store, settings, logger, firstLevel?.FirstLevel);
}
