import { AsyncResource } from 'node:async_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { CacheConfigError } from '../../errors/cache-errors.js';
import { textOf } from '../../errors/limited-log.js';
import { onceRead } from '../../timing/clock.js';
import type { BatchLoader, Loader, LoaderContext } from '../load/cache-loader.js';
import type { LoadScopes } from '../load/load-scopes.js';
import type { Refresher } from './fill.js';

/** What a read reports to the batch load that it takes part in. */
export interface BatchParticipant {
  /** Whether the read waits until its value is stored: the values of a large batch are stored part by part. */
  readonly storesFirst: boolean;
  /** Called when the read does not need the loader. */
  decided(): void;
  /**
   * Called when it waits for another read, in this process or another. It needs the loader if that one fails or is
   * outdated.
   */
  waits(): void;
  /** Called when it has waited and now finds out whether it needs the loader. */
  resumes(): void;
  /** Called when it refreshes its value in the background, unless another process does. */
  refreshes(): void;
  /** Called when the refresh has ended. */
  refreshed(): void;
}

/**
 * How many keys are looked up, or stored, at once: so each is answered within its time limit, and other calls are
 * served in between.
 */
const MOST_AT_ONCE = 512;
/** How long (ms) the loader waits for keys that wait for another read, and for loaded values to be stored. */
const GATHERING = 25;
const STORING = 250;
/** How long (ms) the loader then waits for keys that have waited and will be decided soon. */
const RESUMING = 1_000;

/** A key that must be loaded: it waits for the call of the loader. */
interface Asked {
  readonly key: string;
  readonly context: LoaderContext;
  /** Whether it is loaded in the background, while its value is served. */
  readonly refreshes: boolean;
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/**
 * Calls one loader for many keys, once each of them is decided: it has a value, waits for another read, or must be
 * loaded. Keys that have to be loaded later, to refresh them or because another read failed, are gathered for one more
 * call.
 */
export class BatchLoad {
  /** The keys that are still being looked up. */
  private readonly undecided: Set<string>;
  private readonly waiting = new Set<string>();
  private readonly refreshing = new Set<string>();
  private readonly resumed = new Set<string>();
  private asked: Asked[] = [];
  private gathering: NodeJS.Timeout | undefined = undefined;
  /** Whether `GATHERING` ms have passed: the loader is called without the keys that still wait. */
  private gathered = false;
  /** Whether a caller waits for a key that must be loaded. */
  private urgent = false;
  /** How many keys of the present window are still being looked up. */
  private lookedUp = 0;
  private onLookedUp: (() => void) | undefined = undefined;
  private readonly onEnd = new Map<string, () => void>();

  /** The context of the caller, for the loader: the reply that decides the last key may arrive in another context. */
  private readonly caller = new AsyncResource('CacheRead');

  constructor(
    private readonly keys: readonly string[],
    private readonly loader: BatchLoader<unknown>,
    private readonly scopes: LoadScopes,
    private readonly refresher: Pick<Refresher, 'inBackground'>,
    private readonly keyPrefix: string,
  ) {
    this.undecided = new Set(keys);
  }

  /** Reads each key. Resolves when all have settled. */
  async run(
    read: (key: string, loader: Loader<unknown>, participant: BatchParticipant) => Promise<unknown>,
  ): Promise<PromiseSettledResult<unknown>[]> {
    const { keys } = this;
    const reads: Promise<PromiseSettledResult<unknown>[]>[] = [];
    for (let first = 0; first < keys.length; first += MOST_AT_ONCE) {
      const window = keys.slice(first, first + MOST_AT_ONCE);
      this.lookedUp = window.length;
      const decided = new Promise<void>((resolve) => (this.onLookedUp = resolve));
      reads.push(Promise.allSettled(window.map((key) => this.readOne(key, read))));
      if (first + MOST_AT_ONCE < keys.length) await decided;
    }
    return (await Promise.all(reads)).flat();
  }

  private async readOne(key: string, read: Parameters<BatchLoad['run']>[0]): Promise<unknown> {
    try {
      return await read(key, this.loaderOf(key), this.participantOf(key));
    } finally {
      this.waiting.delete(key);
      this.resumed.delete(key);
      this.decide(key);
      this.ended(key);
    }
  }

  /** The loader of one key, which takes part in the call for all of them. */
  private loaderOf(key: string): Loader<unknown> {
    return (context) =>
      new Promise((resolve, reject) => {
        this.asked.push({ key, context, refreshes: this.refreshing.has(key), resolve, reject });
        this.urgent ||= this.undecided.has(key);
        this.refreshing.delete(key);
        this.resumed.delete(key);
        this.decide(key);
      });
  }

  private participantOf(key: string): BatchParticipant {
    return {
      storesFirst: this.keys.length > MOST_AT_ONCE,
      decided: () => this.decide(key),
      waits: () => {
        this.waiting.add(key);
        this.resumed.delete(key);
        this.decide(key);
      },
      resumes: () => {
        this.waiting.delete(key);
        this.resumed.add(key);
      },
      refreshes: () => this.refreshing.add(key),
      refreshed: () => {
        this.refreshing.delete(key);
        this.ended(key);
        this.loadGathered();
      },
    };
  }

  /** Called when the key has a value, waits for another read, or must be loaded. */
  private decide(key: string): void {
    if (this.undecided.delete(key)) {
      this.lookedUp -= 1;
      if (this.lookedUp === 0) this.onLookedUp?.();
    }
    this.loadGathered();
  }

  private loadGathered(): void {
    if (this.undecided.size > 0 || this.asked.length === 0) return;
    if (!this.urgent) {
      if (this.refreshing.size > 0 || this.resumed.size > 0) return;
      if (this.waiting.size > 0 && !this.gathered) {
        this.gathering ??= setTimeout(() => onceRead(() => this.endGathering()), GATHERING);
        return;
      }
    }
    this.callLoader();
  }

  private endGathering(): void {
    if (!this.gathering) return;
    if (this.gathered) return this.callLoader();
    this.gathered = true;
    this.loadGathered();
    // A key that has waited may be in `revive`, which is the application's code and may take any time.
    if (this.gathering) this.gathering = setTimeout(() => this.endGathering(), RESUMING);
  }

  private callLoader(): void {
    clearTimeout(this.gathering);
    this.gathering = undefined;
    this.gathered = false;
    this.urgent = false;
    // In the order of the call, and not of the answers that decided them.
    const places = new Map(this.keys.map((key, place) => [key, place]));
    const placeOf = ({ key }: Asked) => places.get(key) as number;
    const asked = this.asked.toSorted((one, other) => placeOf(one) - placeOf(other));
    this.asked = [];
    this.load(asked).catch((error: unknown) => {
      for (const each of asked) each.reject(error);
    });
  }

  private async load(asked: readonly Asked[]): Promise<void> {
    const keys = asked.map(({ key }) => key);
    const call = () => this.loader([...keys], jointContext(asked));
    const full = keys.map((key) => this.keyPrefix + key);
    const load = async () => this.scopes.within(full, call);
    // If nobody waits, the caller's context may have ended.
    const background = asked.every(({ refreshes }) => refreshes);
    const values = await (background
      ? this.refresher.inBackground(full[0] as string, load)
      : this.caller.runInAsyncScope(load));
    if (!Array.isArray(values) && !(values instanceof Map)) {
      throw new CacheConfigError(
        `The batch loader returned ${typeof values}; return a list of values in the order of the keys, or a Map by key`,
        keys,
      );
    }
    if (Array.isArray(values) && values.length !== keys.length) {
      throw new CacheConfigError(
        `The batch loader returned ${values.length} values for ${keys.length} keys; return one for each, in their order, or a Map by key`,
        keys,
      );
    }
    if (values instanceof Map) requireAskedKeys(values, keys);
    for (let first = 0; first < asked.length; first += MOST_AT_ONCE) {
      const some = asked.slice(first, first + MOST_AT_ONCE);
      const last = first + MOST_AT_ONCE >= asked.length;
      const stored = last ? [] : some.map(({ key }) => new Promise<void>((resolve) => this.onEnd.set(key, resolve)));
      for (const [index, each] of some.entries()) {
        const value: unknown =
          values instanceof Map ? values.get(each.key) : (values as readonly unknown[])[first + index];
        each.resolve(value ?? null);
      }
      if (!last) await Promise.race([Promise.all(stored), sleep(STORING, undefined, { ref: false })]);
    }
  }

  private ended(key: string): void {
    this.onEnd.get(key)?.();
    this.onEnd.delete(key);
  }
}

/**
 * A Map that lacks keys and has others is not "there is none", but a Map by something else, such as the id of the rows.
 *
 * @throws CacheConfigError
 */
function requireAskedKeys(values: ReadonlyMap<unknown, unknown>, keys: readonly string[]): void {
  const missing = keys.find((key) => !values.has(key));
  if (missing === undefined) return;
  const asked = new Set<unknown>(keys);
  for (const key of values.keys()) {
    if (asked.has(key)) continue;
    const shown = typeof key === 'string' ? `"${key}"` : `${textOf(key)} (${typeof key})`;
    throw new CacheConfigError(
      `The batch loader returned a Map with the key ${shown}, for which it was not asked, and without "${missing}"; use the keys as they were given`,
      keys,
    );
  }
}

/** The context of a joint call: what the loader sets applies to each of the keys. */
function jointContext(asked: readonly Asked[]): LoaderContext {
  const contexts = asked.map(({ context }) => context);
  return {
    get signal() {
      return AbortSignal.any(contexts.map(({ signal }) => signal));
    },
    stale: undefined,
    skip: () => contexts.forEach((context) => context.skip()),
    setTtl: (ttl) => contexts.forEach((context) => context.setTtl(ttl)),
    setTags: (tags) => contexts.forEach((context) => context.setTags(tags)),
  };
}
