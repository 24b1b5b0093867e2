import type { Attributes, Meter } from '@opentelemetry/api';
import { cacheChannels, type CacheLoadStarted } from '../../events/cache-channels.js';
import { listenAll } from '../listen-all.js';
import { ATTRIBUTE, typeOf } from './attributes.js';
import { durations } from './durations.js';

/** Measures the caches. Returns the function that stops. */
export function listenToCacheMetrics(meter: Meter): () => void {
  const counter = (name: string, description: string, unit: string) =>
    meter.createCounter(`nest_redis_lock.cache.${name}`, { description, unit });
  const reads = counter('reads', 'Reads, by what they found', '{read}');
  const refreshFailures = counter('refresh.failures', 'Loads in the background that failed', '{failure}');
  const refusals = counter('commit.refusals', 'Loaded values that the store refused', '{value}');
  const invalidations = counter('invalidations', 'Invalidations, by what they name', '{invalidation}');
  const openings = counter('breaker.openings', 'Times that the circuit breaker opened', '{opening}');
  const load = durations(meter, 'nest_redis_lock.cache.load.duration', 'Time that loaders ran');
  const loading = meter.createUpDownCounter('nest_redis_lock.cache.loading', {
    description: 'Loads that run',
    unit: '{load}',
  });

  const running = new WeakSet<CacheLoadStarted>();
  return listenAll(cacheChannels, {
    hit: ({ template, level, stale }) => {
      reads.add(1, { ...seriesOf(template), [ATTRIBUTE.outcome]: stale ? 'stale' : 'hit', [ATTRIBUTE.level]: level });
    },
    miss: ({ template }) => reads.add(1, { ...seriesOf(template), [ATTRIBUTE.outcome]: 'miss' }),
    loadStarted: (started) => {
      running.add(started);
      loading.add(1, seriesOf(started.template));
    },
    load: ({ template, load: started, took, error }) => {
      if (started && running.delete(started)) loading.add(-1, seriesOf(template));
      const failed = error === undefined ? {} : { [ATTRIBUTE.errorType]: typeOf(error) };
      if (took !== undefined) load(took, { ...seriesOf(template), ...failed });
    },
    refreshFailed: ({ template }) => refreshFailures.add(1, seriesOf(template)),
    commitRefused: ({ template }) => refusals.add(1, seriesOf(template)),
    invalidate: ({ key, tag }) => {
      const by = key !== undefined ? 'key' : tag !== undefined ? 'tag' : 'matching';
      invalidations.add(1, { [ATTRIBUTE.by]: by });
    },
    breakerOpened: () => openings.add(1),
  });
}

function seriesOf(template: string | undefined): Attributes {
  return { [ATTRIBUTE.template]: template ?? 'none' };
}
