import { setTimeout as sleep } from 'node:timers/promises';
import type { StoredData } from '../../contracts/cache-store.js';
import type { CacheEngine } from '../cache-engine.js';
import { CacheBackendError, CacheConfigError } from '../../errors/cache-errors.js';
import { cacheOption } from '../../options/option-checks.js';
import { countable, type Serialized } from '../values/envelope.js';
import type { EntrySettings } from '../options/entry-settings.js';
import { keyResource, tagResource, type Access } from '../invalidation/step-order.js';

/** How often a value is sent if it reaches Redis too late, after a standstill of this process or of the network. */
const MOST_TIMES = 4;

/** Stores one value by hand, in the state that it had at the call. */
export class ValueWrite {
  /** The digits of a number that `incr` can count, or the content of the envelope. */
  private readonly content: string | Serialized;
  private readonly tags: readonly string[];

  /** @throws CacheConfigError for a value that cannot be stored */
  constructor(
    private readonly engine: CacheEngine,
    private readonly key: string,
    value: unknown,
    private readonly ttl: number,
    private readonly staleTtl: number,
    { tags, revive }: EntrySettings,
  ) {
    this.tags = tags;
    if (value instanceof Promise) throw cacheOption.refused('value', value, 'what the promise resolves to: await it');
    const counts = tags.length === 0 && staleTtl === 0 && countable(value);
    this.content = counts ? String(value) : this.serialized(value, revive);
  }

  /** Stores after the steps called before, and after `go`. Resolves to whether it stored. @throws CacheBackendError */
  async store(ifAbsent: boolean, go: Promise<unknown> | undefined): Promise<boolean> {
    const { engine, key } = this;
    const { invalidations, local, matchingDeletions, stepOrder } = engine;
    const accesses: Access[] = [{ resource: keyResource(key) }];
    for (const tag of this.tags) accesses.push({ resource: tagResource(tag), mode: 'begin' });
    local.forget(key);
    if (!ifAbsent) matchingDeletions.spare(key);
    try {
      return await stepOrder.run(accesses, async () => {
        if (go) await go;
        if (ifAbsent && engine.unconfirmed.size > 0) await engine.unconfirmed.settle(key);
        return this.send(ifAbsent);
      });
    } catch (error) {
      if (error instanceof CacheBackendError && !ifAbsent) invalidations.deleteLater(key);
      throw error;
    } finally {
      local.forget(key);
    }
  }

  private async send(ifAbsent: boolean): Promise<boolean> {
    const { engine, key } = this;
    const { calls, invalidations } = engine;
    const ttl = this.ttl + this.staleTtl;
    const data = await this.sealed();
    const within = calls.options.commandTimeout;
    const request = { key, data, ttl, ifAbsent, within };
    // A value whose reply came too late may have been stored, and may be older than a later change.
    const late = (stored: boolean | 'late') => stored === true && invalidations.deleteLater(key);
    const before = invalidations.neededUntilStored(key);
    let until = 0;
    const call = () => {
      until = performance.now() + within;
      return calls.store.set(request);
    };
    try {
      for (let time = 1; time <= MOST_TIMES; time++) {
        const stored = await calls.run('set', key, call, late);
        if (stored === true) engine.unconfirmed.confirmed(before);
        if (stored !== 'late') return stored;
      }
      throw calls.failure('set', key, `it reached Redis more than ${within} ms after it was sent, ${MOST_TIMES} times`);
    } catch (error) {
      // Until then Redis may still store a value that it has not confirmed, which would undo a later change.
      const left = until - performance.now();
      if (left > 0 && !isAnswer(error)) await sleep(left);
      throw error;
    }
  }

  private async sealed(): Promise<StoredData> {
    if (typeof this.content === 'string') return this.content;
    const { engine, key, ttl, staleTtl, content } = this;
    const tags = this.tags.length > 0 ? await engine.tagStamps.ofWrite(key, this.tags, ttl + staleTtl) : undefined;
    const mark = { expiresAt: Date.now() + ttl, keptStale: staleTtl > 0, loadTime: undefined, tags };
    try {
      return await engine.envelopes.sealSerialized(content, mark);
    } catch (error) {
      throw unstorable(key, error);
    }
  }

  private serialized(value: unknown, revive: EntrySettings['revive']): Serialized {
    try {
      this.engine.unkeptClasses.look(this.key, value, revive);
      return this.engine.envelopes.serialize(value);
    } catch (error) {
      throw unstorable(this.key, error);
    }
  }
}

function unstorable(key: string, error: unknown): CacheConfigError {
  return new CacheConfigError(`The value of "${key}" cannot be stored: ${String(error)}`, [key]);
}

/** Whether it is a reply of Redis. */
function isAnswer(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) if (cause.name === 'ReplyError') return true;
  return false;
}
