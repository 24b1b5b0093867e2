import { AsyncLocalStorage, AsyncResource, executionAsyncResource } from 'node:async_hooks';
import { LockTimeoutError, LockUpgradeError } from '../../errors/lock-errors.js';
import type { Caller } from '../line/caller.js';
import type { QueueingBackend } from '../line/named-backend.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { BareAcquisition } from './bare-acquisition.js';
import type { HeldLock, HeldPart } from './held-lock.js';

/** The holds around the running code, and those that it acquired itself; one for each module instance. */
export class HoldContext {
  /** Runs `body` in a new scope, which closes with the hold. */
  run<T>(hold: HeldLock, body: (hold: HeldLock) => T): T {
    const frame = currentFrame();
    const store = frame && this.storeIn(frame);
    const scope = new HoldScope(hold, store && scopeIn(store), store && acquisitionIn(store));
    hold.context = scope;
    return storage.run({ of: this, store: scope, others: frame && without(frame, this) }, body, hold);
  }

  /** Called by `acquire` for these names: the running code, and what it calls, may then release them by name. */
  acquiring(names: readonly string[], origin: BareAcquisition['origin']): BareAcquisition {
    const frame = currentFrame();
    const store = frame && this.storeIn(frame);
    const others = frame && without(frame, this);
    const acquisition = new BareAcquisition(
      this,
      names,
      store && scopeIn(store),
      store && acquisitionIn(store),
      origin,
    );
    storage.enter(others ? { of: this, store: acquisition, others } : acquisition);
    return acquisition;
  }

  /** Runs `callback` in exactly the scopes that the holder is in. */
  runAs({ context }: HeldLock, callback: () => void): void {
    const frame = currentFrame();
    if (context instanceof HoldScope || context instanceof BareAcquisition) {
      storage.run({ of: this, store: context, others: frame && without(frame, this) }, callback);
      return;
    }
    const others = frame && without(frame, this);
    if (others) storage.run(others, callback);
    else storage.exit(callback);
  }

  /** The innermost open scope around the running code. */
  get scope(): HoldScope | undefined {
    const frame = currentFrame();
    const store = frame && this.storeIn(frame);
    return store && scopeIn(store);
  }

  /** The holds of all open scopes around the running code. */
  get holds(): readonly HeldLock[] {
    const holds: HeldLock[] = [];
    for (let { scope } = this; scope; scope = scope.parent) if (scope.hold) holds.push(scope.hold);
    return holds;
  }

  /** The innermost open scope that holds the name. */
  covering(backend: QueueingBackend, name: string): HoldScope | undefined {
    for (let { scope } = this; scope; scope = scope.parent) if (scope.hold?.partOf(backend, name)) return scope;
    return undefined;
  }

  /**
   * The innermost hold of exactly these names that the running code is inside of or acquired. The last `acquire` of
   * them decides, even if it failed: the hold of an earlier one is then not meant.
   */
  holdOf(names: readonly string[]): HeldLock | undefined {
    const frame = currentFrame();
    const store = frame && this.storeIn(frame);
    let scope = store && scopeIn(store);
    let acquisition = store && acquisitionIn(store);
    for (;;) {
      for (; acquisition && acquisition.scope === scope; acquisition = acquisition.before) {
        if (sameNames(acquisition.names, names)) return acquisition.hold ?? undefined;
      }
      if (!scope) return undefined;
      if (scope.hold && sameNames(scope.hold.keys, names)) return scope.hold;
      scope = scope.parent;
    }
  }

  /** Of the running code: the scope around it, or its last acquisition. */
  private storeIn(frame: Frame): HoldScope | BareAcquisition | undefined {
    for (let each: Frame | undefined = frame; each; each = each.others) if (each.of === this) return each.store;
    return undefined;
  }
}

/**
 * The scope of one hold: the code inside `withLock` or a decorated method, and all that it calls asynchronously. It
 * admits one nested hold of a name at a time, so that siblings (`Promise.all`) take turns instead of racing. It closes
 * when its hold ends; work that goes on after that is outside.
 *
 * Such work may run for ever with a reference to its scope, so a closed scope drops its hold and all closed scopes
 * around it.
 */
export class HoldScope {
  /** For each name that a nested hold has: the siblings that wait for their turn, in order of arrival. */
  private turns: Map<string, (() => void)[]> | undefined = undefined;
  private held: HeldLock | undefined;

  constructor(
    hold: HeldLock,
    private outer: HoldScope | undefined,
    /** The last acquisition before it in its async context. */
    readonly earlier: BareAcquisition | undefined,
  ) {
    this.held = hold;
  }

  /** Its hold; `undefined` once it is closed. */
  get hold(): HeldLock | undefined {
    return this.held;
  }

  /** The scope if it is open, otherwise the nearest open one around it. */
  get nearestOpen(): HoldScope | undefined {
    return this.held ? this : this.parent;
  }

  /** The nearest open scope around it. */
  get parent(): HoldScope | undefined {
    return (this.outer = this.outer?.nearestOpen);
  }

  /**
   * Waits for the turn of `name`. Returns a function that ends the turn, or `undefined` if the scope closed first.
   *
   * @throws LockTimeoutError when the wait is over
   */
  async takeTurn(name: string, caller: Caller): Promise<(() => void) | undefined> {
    const turns = (this.turns ??= new Map());
    const waiting = turns.get(name);
    if (waiting) {
      await this.queue(waiting, name, caller);
      if (!this.held) return undefined;
    } else turns.set(name, []);
    let ended = false;
    return () => {
      if (ended) return;
      ended = true;
      this.passOn(name);
    };
  }

  private async queue(waiting: (() => void)[], name: string, caller: Caller): Promise<void> {
    let admit = () => {};
    const admitted = new Promise<true>((resolve) => {
      admit = () => resolve(true);
    });
    waiting.push(admit);
    const leave = () => {
      const place = waiting.indexOf(admit);
      // Its turn began while it gave up, so the turn passes to the next sibling.
      if (place === -1) this.passOn(name);
      else waiting.splice(place, 1);
    };
    try {
      if (await caller.until(admitted, caller.remaining())) return;
    } catch (error) {
      leave();
      throw error;
    }
    leave();
    const { held } = this;
    throw new LockTimeoutError([name], {
      waited: caller.waited(),
      remaining: held?.remaining() ?? 0,
      ...(held && { owner: held.owner }),
    });
  }

  private passOn(name: string): void {
    const next = this.turns?.get(name)?.shift();
    if (next) next();
    else this.turns?.delete(name);
  }

  /** Closes the scope when its hold has ended; the waiting siblings go on without it. */
  close(): void {
    this.held = undefined;
    this.outer = this.outer?.nearestOpen;
    for (const waiting of this.turns?.values() ?? []) for (const admit of waiting.splice(0)) admit();
  }
}

/**
 * Re-enters the holds around the caller: takes the turn of each name that one of them has, and adds its lease to
 * `parts`. Returns the names that none of them has.
 *
 * @throws LockUpgradeError when one of them has a name to read, and the caller wants to write
 * @throws LockTimeoutError when the wait for a turn is over
 * @throws LockLostError when the hold around the caller was lost
 */
export async function reenter(
  context: HoldContext,
  backend: QueueingBackend,
  names: readonly string[],
  caller: Caller,
  parts: HeldPart[],
): Promise<readonly string[]> {
  const missing: string[] = [];
  for (const name of names) {
    const part = await reenterOne(context, backend, name, caller);
    if (part) parts.push(part);
    else missing.push(name);
  }
  return missing;
}

async function reenterOne(
  context: HoldContext,
  backend: QueueingBackend,
  name: string,
  caller: Caller,
): Promise<HeldPart | undefined> {
  for (;;) {
    const scope = context.covering(backend, name);
    const part = scope?.hold?.partOf(backend, name);
    if (!scope || !part) return undefined;
    const { lease } = part;
    const reads = lease.options.mode === 'read';
    if (reads && caller.options.mode === 'write') throw new LockUpgradeError([name]);
    const endTurn = reads ? noTurn : await scope.takeTurn(name, caller);
    if (!endTurn) continue;
    if (!lease.lost && reads === (lease.options.mode === 'read')) return { lease, endTurn };
    endTurn();
    // While it waited for its turn, the hold around it may have ended and left the name to readers.
    if (lease.lost) throw lease.lost;
  }
}

/** Nested holds that read need not take turns. */
function noTurn(): void {}

/** Extends those re-entered leases without renewal that would end before the `ttl` of the nested hold. */
export async function extendForNested(
  backend: QueueingBackend,
  parts: readonly HeldPart[],
  { ttl }: ResolvedLockOptions,
  caller: Caller,
): Promise<void> {
  for (const { lease } of parts) {
    if (lease.options.renewal || lease.remaining() >= ttl) continue;
    await backend.extend(lease, ttl, caller.limitOf(backend.calls));
    if (lease.lost) throw lease.lost;
  }
}

/** Makes each lease last for `minHold` without renewals, because that of a claim may be shorter. */
export async function outlastMinHold(
  backend: QueueingBackend,
  parts: readonly HeldPart[],
  options: ResolvedLockOptions,
  caller: Caller,
): Promise<void> {
  for (const { lease } of parts) {
    if (lease.grant.lastsFor(options.minHold)) continue;
    await backend.keep(lease, options.lease, caller.limitOf(backend.calls));
  }
}

/**
 * Refuses a call with `reentrant: false` for a name that a hold around it has, because the call would wait for the end
 * of that hold, which ends only after the call.
 *
 * @throws LockTimeoutError
 */
export function refuseToWaitForOwnHold(context: HoldContext, backend: QueueingBackend, names: readonly string[]): void {
  for (const name of names) {
    const hold = context.covering(backend, name)?.hold;
    if (!hold?.held) continue;
    throw new LockTimeoutError(names, {
      waited: 0,
      remaining: hold.remaining(),
      owner: hold.owner,
      remedy:
        `The call runs inside of the hold of "${name}" and would wait for itself: leave "reentrant: false" out, or call ` +
        'it when that hold has ended',
    });
  }
}

/**
 * What a module instance has entered around the running code, above what it and others entered before. An acquisition
 * without others around it is its own frame.
 */
export interface Frame {
  readonly of: HoldContext;
  readonly store: HoldScope | BareAcquisition;
  /** Of other module instances. */
  readonly others: Frame | undefined;
}

/** Of the running code; without an acquisition whose run is over. */
function currentFrame(): Frame | undefined {
  const frame = storage.getStore();
  return RESOURCES_KEEP_STORES && frame?.store instanceof BareAcquisition ? storage.lasting(frame) : frame;
}

/** The frames of all module instances but this one. Drops those that are over, or they would pile up in a loop. */
function without(frame: Frame, context: HoldContext): Frame | undefined {
  if (frame.of === context) return frame.others;
  const others = frame.others && without(frame.others, context);
  if (isOver(frame.store)) return others;
  return others === frame.others ? frame : { ...frame, others };
}

function isOver(store: HoldScope | BareAcquisition): boolean {
  return !scopeIn(store) && (acquisitionIn(store)?.ended ?? true);
}

function scopeIn(store: HoldScope | BareAcquisition): HoldScope | undefined {
  return store instanceof HoldScope ? store.nearestOpen : store.scope;
}

function acquisitionIn(store: HoldScope | BareAcquisition): BareAcquisition | undefined {
  return store instanceof HoldScope ? store.earlier : store;
}

function sameNames(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((name, index) => name === others[index]);
}

/**
 * Before Node.js 24, an async resource that runs more than once keeps a value entered in one run for the next: the
 * second tick of an interval, or the second request of a connection, would see the value of the first.
 */
const RESOURCES_KEEP_STORES = ((): boolean => {
  const storage = new AsyncLocalStorage<true>();
  const resource = new AsyncResource('RunStorage');
  resource.runInAsyncScope(() => storage.enterWith(true));
  const kept = resource.runInAsyncScope(() => storage.getStore());
  storage.disable();
  return kept === true;
})();

interface Entry<T> {
  value: T;
  readonly outside: T | undefined;
  /** Whether the run in which it was entered has ended. */
  over: boolean;
}

/**
 * An `AsyncLocalStorage` in which an entered value lasts only for the run of the code that entered it, and for what
 * that run calls.
 */
class RunStorage<T extends object> extends AsyncLocalStorage<T> {
  /** By async resource; used only where `RESOURCES_KEEP_STORES`. */
  private readonly entries = new WeakMap<object, Entry<T>>();

  /**
   * `entered` is what `getStore` returned. If its run is over, returns the value outside of that run instead. Only for
   * `RESOURCES_KEEP_STORES`.
   */
  lasting(entered: T): T | undefined {
    const resource = executionAsyncResource();
    const entry = this.entries.get(resource);
    if (!entry?.over || entry.value !== entered) return entered;
    this.entries.delete(resource);
    this.enterWith(entry.outside as T);
    return entry.outside;
  }

  /** Sets the value for the rest of this run and what it calls. */
  enter(value: T): void {
    if (!RESOURCES_KEEP_STORES) return this.enterWith(value);
    const store = this.getStore();
    const outside = store && this.lasting(store);
    this.enterWith(value);
    this.remember(value, outside);
  }

  private remember(value: T, outside: T | undefined): void {
    const resource = executionAsyncResource();
    const present = this.entries.get(resource);
    if (present && !present.over) {
      // Otherwise it was entered inside of a run() of this storage, which restores the former value.
      if (present.value === outside) present.value = value;
      return;
    }
    const entry: Entry<T> = { value, outside, over: false };
    this.entries.set(resource, entry);
    void Promise.resolve().then(() => {
      entry.over = true;
    });
  }
}

/**
 * One storage for all module instances. Before Node.js 24, each storage that was ever used makes each promise of the
 * process larger and slower, and an application's tests create hundreds of module instances.
 */
const storage = new RunStorage<Frame>();
