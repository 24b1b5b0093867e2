import { Inject, Injectable, Optional } from '@nestjs/common';
import { HealthIndicatorService, type HealthIndicatorResult } from '@nestjs/terminus';
import { CacheService } from '../../cache/cache.service.js';
import type { BackendCalls } from '../../lock/grant/store.js';
import type { Pending } from '../../contracts/store.js';
import { messageOf } from '../../errors/limited-log.js';
import { LockService } from '../../lock/lock.service.js';
import { duration, instance, oneOf, timer, type Duration } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** What `RedisLockHealthIndicator.check` looks at, and from when on it reports `degraded`. */
export interface HealthOptions {
  /** The name of one of the module's `backends`. @default the one that calls use by default */
  backend?: string;
  /** How long each request may take until it counts as unanswered, and the backend as `down`. @default '2s' */
  timeout?: Duration;
  /** A request that takes longer is reported as `degraded`. @default '250ms' */
  slow?: Duration;
  /** A renewal that is due for longer is reported as `degraded`: the process is busy. @default '1s' */
  maxLag?: Duration;
  /** What the check reports while the Redis of the cache does not answer. @default 'degraded' */
  cache?: 'degraded' | 'down';
}

/** A name that no application locks: only asked for, never taken. */
const PROBE = 'nest-redis-lock:health';

/**
 * Whether locks can be taken, for `@nestjs/terminus`. `down`: the backend does not answer. `degraded`: locks are taken,
 * but something is wrong, which `problems` tells in words. Terminus 11 knows no `degraded`: there the status is `up`
 * with `degraded: true`.
 */
@Injectable()
export class RedisLockHealthIndicator {
  /** @internal */
  constructor(
    @Inject(HealthIndicatorService) private readonly indicators: HealthIndicatorService,
    @Inject(LockService) private readonly locks: LockService,
    @Optional() @Inject(CacheService) private readonly cache?: CacheService,
  ) {}

  /**
   * Asks the backend. The result has `pingMs` and `scriptMs` (the round trips of a PING, and of what `inspect` asks),
   * `channel` (`open`, `closed`, or `unused` while no call has waited), `held`, `waiting` and `watchdogLagMs` of this
   * process, and `problems`.
   *
   * @throws LockConfigError for an option that it cannot take
   */
  async check(key = 'locks', options: HealthOptions = {}): Promise<HealthIndicatorResult> {
    const { backend: name, timeout, slow, maxLag, cache: ofCache } = resolveHealthOptions(options);
    const { backend, held, waiting } = this.locks.backendState(name);
    const { calls, contenders, watchdog } = backend;
    const session = this.indicators.check(key);
    const channel = contenders.channel.isOpen ? 'open' : contenders.channel.tried ? 'closed' : 'unused';
    const watchdogLagMs = Math.round(watchdog.lag);
    const here = { backend: calls.source.backend, channel, held, waiting, watchdogLagMs };
    const problems: string[] = [];
    const cacheTrouble = this.cacheTrouble(timeout);
    let measured: { pingMs: number; scriptMs: number };
    try {
      const pingMs = await roundTrip(() => calls.ping(timeout));
      const scriptMs = await roundTrip(() => calls.inspect(PROBE, timeout));
      measured = { pingMs, scriptMs };
      problems.push(...(await hazardsOf(calls, timeout)));
    } catch (error) {
      return session.down({ ...here, problems: [(error as Error).message] });
    }
    const { answers, problems: ofTheCache } = await cacheTrouble;
    problems.push(...ofTheCache);
    if (!answers && ofCache === 'down') return session.down({ ...here, ...measured, problems });
    const slowest = Math.max(measured.pingMs, measured.scriptMs);
    if (slowest > slow) problems.push(`A request took ${slowest} ms, which is more than "slow" (${slow} ms)`);
    if (watchdogLagMs > maxLag) {
      problems.push(`A renewal is due for ${watchdogLagMs} ms, which is more than "maxLag" (${maxLag} ms)`);
    }
    if (channel === 'closed') problems.push('The channel for messages is closed: calls that wait ask again and again');
    const data = { ...here, ...measured, problems };
    if (problems.length === 0) return session.up(data);
    return typeof session.degraded === 'function' ? session.degraded(data) : session.up({ ...data, degraded: true });
  }

  /** What is wrong with the cache, if the application uses it: reads go on without it, but load each time. */
  private async cacheTrouble(timeout: number): Promise<{ answers: boolean; problems: string[] }> {
    const engine = this.cache instanceof CacheService ? this.cache.engineInUse : undefined;
    if (!engine) return { answers: true, problems: [] };
    const { calls, unconfirmed } = engine;
    const problems: string[] = [];
    let answers = true;
    try {
      await answerWithin(timeout, calls.store.ping());
      if (calls.breaker.isOpen) problems.push('The circuit breaker of the cache is open: the cache is not asked');
    } catch (error) {
      answers = false;
      problems.push(`The cache's Redis does not answer: ${messageOf(calls.store.diagnose?.(error) ?? error)}`);
    }
    if (engine.wasConnected && !engine.busConnected) {
      problems.push('The channel for messages of the cache is closed: changes by other processes do not arrive');
    }
    if (unconfirmed.size > 0) {
      problems.push(`${unconfirmed.size} invalidations of the cache are not confirmed, and are repeated`);
    }
    return { answers, problems };
  }
}

/** Rejects after `limit` ms without an answer. */
async function answerWithin(limit: number, answer: Pending<unknown>): Promise<void> {
  let limiting: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    limiting = setTimeout(() => reject(new Error(`no answer within ${limit} ms`)), limit);
  });
  const answered = new Promise((resolve, reject) => void answer.then(resolve, reject));
  await Promise.race([answered, late]).finally(() => clearTimeout(limiting));
}

/** Milliseconds until it answers. */
async function roundTrip(send: () => Promise<unknown>): Promise<number> {
  const sentAt = performance.now();
  await send();
  return Math.round((performance.now() - sentAt) * 10) / 10;
}

/** A server that may not be asked for its settings has no known hazard. */
async function hazardsOf(calls: BackendCalls, timeout: number): Promise<readonly string[]> {
  try {
    return await calls.bounded('hazards', [], () => calls.backend.hazards?.() ?? Promise.resolve([]), timeout);
  } catch {
    return [];
  }
}

/** `HealthOptions` checked and in ms. */
interface HealthSettings {
  readonly backend: string | undefined;
  readonly timeout: number;
  readonly slow: number;
  readonly maxLag: number;
  readonly cache: 'degraded' | 'down';
}

const setting = settingOf<HealthSettings>();

const HEALTH_OPTIONS = new OptionTable<HealthOptions, HealthSettings>(
  lockOption,
  'option of the health check',
  '',
  { backend: undefined, timeout: 2_000, slow: 250, maxLag: 1_000, cache: 'degraded' },
  {
    backend: setting(
      'backend',
      instance((value) => typeof value === 'string', 'the name of a backend'),
    ),
    timeout: setting('timeout', timer(1)),
    slow: setting('slow', duration(1)),
    maxLag: setting('maxLag', duration(1)),
    cache: setting('cache', oneOf('degraded', 'down')),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
function resolveHealthOptions(options: HealthOptions): HealthSettings {
  return HEALTH_OPTIONS.settings(lockOption.object('options', options, 'an object of options'));
}
