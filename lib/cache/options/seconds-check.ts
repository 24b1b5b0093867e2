import type { CacheEntryOptions, CacheOptions } from './cache-options.js';

const TIMES = ['ttl', 'nullTtl', 'staleTtl'] as const satisfies (keyof CacheEntryOptions)[];

/** A warning for each time below one second that is given as a bare number: other caches count in seconds. */
export function secondsTaken(options: Readonly<Record<string, unknown>>, prefix = ''): string[] {
  return TIMES.flatMap((time) => {
    const value = options[time];
    const name = prefix + time;
    if (typeof value !== 'number' || value <= 0 || value >= 1_000) return [];
    return [
      `"${name}: ${value}" is ${value} milliseconds; write '${value}s' where seconds are meant, else '${value}ms'`,
    ];
  });
}

/** The same for the options of the module. */
export function secondsTakenByModule({ defaults, l1 }: CacheOptions): string[] {
  return [...secondsTaken({ ...defaults }, 'cache.defaults.'), ...secondsTaken({ ...l1 }, 'cache.l1.')];
}
