import type {
  HitAnswer,
  HitRequest,
  RateLimitStore,
  TakeAnswer,
  TakeRequest,
} from '../../../contracts/primitives/rate-limit-store.js';
import { ExpiringMap } from '../expiring-map.js';

interface Window {
  readonly hits: number;
  readonly blocked: boolean;
}

/** Rate limits in memory, on the monotonic clock of the process, by the same algorithm as on Redis. */
export class MemoryRateLimitStore implements RateLimitStore {
  private begin = '';

  constructor(
    /** The µs of the monotonic clock at which all units are back. */
    private readonly full = new ExpiringMap<number>(),
    private readonly windows = new ExpiringMap<Window>(),
  ) {}

  /** The same counts, for the keys of a module. */
  of(prefix: string | undefined): MemoryRateLimitStore {
    const store = new MemoryRateLimitStore(this.full, this.windows);
    store.begin = prefix === undefined ? '' : `${prefix}:`;
    return store;
  }

  async take(request: TakeRequest): Promise<TakeAnswer> {
    const now = microseconds();
    const used = this.usedAt(now, request);
    let granted = request.most;
    for (const [index, { interval, capacity }] of request.limits.entries()) {
      granted = Math.min(granted, Math.floor((capacity - (used[index] as number)) / interval));
    }
    if (granted < request.least) return { granted: 0, used };
    for (const [index, { id, interval }] of request.limits.entries()) {
      const after = (used[index] as number) + granted * interval;
      used[index] = after;
      this.full.set(this.keyOf(request.key, id), now + after, after / 1_000 + 1);
    }
    return { granted, used };
  }

  async peek(request: Pick<TakeRequest, 'key' | 'limits'>): Promise<readonly number[]> {
    return this.usedAt(microseconds(), request);
  }

  async reset({ key, limits }: Pick<TakeRequest, 'key' | 'limits'>): Promise<void> {
    for (const { id } of limits) this.full.delete(this.keyOf(key, id));
  }

  async hit({ key, window, limit, block }: HitRequest): Promise<HitAnswer> {
    const counted = this.keyOf(key, 'hits');
    const before = this.windows.get(counted);
    const left = this.windows.remaining(counted) ?? window;
    if (before?.blocked) return { hits: before.hits, left, blocked: true };
    const hits = (before?.hits ?? 0) + 1;
    const blocked = hits > limit;
    const beyond = blocked && block > 0;
    this.windows.set(counted, { hits, blocked: beyond }, beyond ? block : left);
    return { hits, left: beyond ? block : left, blocked };
  }

  private usedAt(now: number, { key, limits }: Pick<TakeRequest, 'key' | 'limits'>): number[] {
    return limits.map(({ id, capacity }) => {
      const full = this.full.get(this.keyOf(key, id)) ?? 0;
      return Math.min(capacity, Math.max(0, full - now));
    });
  }

  private keyOf(key: string, id: string): string {
    return `${this.begin}${key}\n${id}`;
  }
}

function microseconds(): number {
  return Math.floor(performance.now() * 1_000);
}
