import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockBackend } from '../contracts/lock-backend.js';
import type { Lock } from '../lock/hold/lock.js';
import type { LockService } from '../lock/lock.service.js';
import { StoreClient } from './store-client.js';
import { testServices } from './wire.js';

/** How long (ms) a case waits for what must come: the machine may be slow. */
const PATIENCE = 30_000;
/** How long (ms) a service waits for an answer of the store, for the same reason. */
const COMMAND_TIMEOUT = 5_000;

/** What one case uses: backends, processes and services that end with it, and names that no other case has. */
export class Stage {
  /** A name of this case. */
  readonly name = `conformance:${randomUUID()}`;
  private readonly backends = new Set<LockBackend>();
  private readonly services: (() => Promise<void>)[] = [];

  constructor(private readonly world: LockBackendWorld) {}

  async backend(): Promise<LockBackend> {
    const backend = await this.world.open();
    this.backends.add(backend);
    return backend;
  }

  /** A process that sends single requests. */
  async client(prefix?: string): Promise<StoreClient> {
    return new StoreClient(await this.backend(), prefix);
  }

  /** A process with a `LockService`. */
  async locks(backend?: LockBackend): Promise<LockService> {
    const main = backend ?? (await this.world.open());
    this.backends.delete(main);
    const services = testServices({
      backend: main,
      cache: false,
      commandTimeout: COMMAND_TIMEOUT,
      shutdownGrace: 0,
    });
    this.services.push(() => services.close());
    return services.locks;
  }

  /** Resolves when `probe` answers something true. */
  async until(what: string, probe: () => boolean | Promise<boolean>): Promise<void> {
    const end = performance.now() + PATIENCE;
    while (!(await probe())) {
      if (performance.now() > end) throw new Error(`Not within ${PATIENCE} ms: ${what}`);
      await sleep(10);
    }
  }

  async end(): Promise<void> {
    await Promise.all(this.services.map((close) => close()));
    await Promise.all([...this.backends].map((backend) => backend.close()));
  }
}

/**
 * Faults that a test makes at the store. A world leaves out what it cannot do, and the cases that need it are reported.
 */
export interface StoreFaults {
  /** The store answers nothing more until the returned function is called; its connections stay open. */
  pause(): Promise<() => Promise<void>>;
  /** The store ends and starts again, with the data that it keeps by its own settings. */
  restart(): Promise<void>;
  /** The store ends and starts again without any data. */
  loseData(): Promise<void>;
  /** Every connection to the store is cut, once. */
  cut(): Promise<void>;
  /** Requests reach the store and no reply comes back, until the returned function is called. */
  loseReplies(): Promise<() => Promise<void>>;
  /** The store ends the session in which this backend holds its locks. */
  killSession(backend: LockBackend): Promise<void>;
}

/** The name of a fault. */
export type StoreFault = keyof StoreFaults;

/** One store, and how to reach it. */
export interface LockBackendWorld {
  /**
   * Opens a backend at the store, with connections of its own, as another process would. The suite closes it. A backend
   * in memory answers the same instance.
   */
  open(): LockBackend | Promise<LockBackend>;
  readonly faults?: Partial<StoreFaults>;
}

/** One rule that every backend keeps. */
export interface LockBackendCase {
  /** A sentence about the backend. */
  readonly name: string;
  /** The faults that the case makes. */
  readonly needs: readonly StoreFault[];
  /** Those of them that the world cannot make: report the case as skipped. */
  readonly missing: readonly StoreFault[];
  /** Rejects with an `AssertionError` when the backend breaks the rule. Takes up to a minute where leases must end. */
  run(): Promise<void>;
}

/**
 * A resource that only one holder may use at a time, and that refuses a fencing token below the highest it has seen.
 */
export class ProtectedResource {
  uses = 0;
  private inside: string | undefined;
  private highest = 0;

  async use(lock: Pick<Lock, 'owner' | 'fencingToken'>, work: () => Promise<unknown>): Promise<void> {
    const { owner, fencingToken } = lock;
    assert.equal(this.inside, undefined, `${owner} entered while ${this.inside} was inside`);
    assert(fencingToken > this.highest, `token ${fencingToken} of ${owner} after ${this.highest}`);
    this.inside = owner;
    this.highest = fencingToken;
    await work();
    assert.equal(this.inside, owner, `${this.inside} entered while ${owner} was inside`);
    this.inside = undefined;
    this.uses += 1;
  }

  /** The token that a later holder must exceed. */
  get token(): number {
    return this.highest;
  }
}

/** A rule, before it is applied to a world. */
export interface Rule {
  readonly name: string;
  readonly needs: readonly StoreFault[];
  readonly body: (stage: Stage, faults: StoreFaults) => Promise<void>;
}

export function rule(name: string, body: (stage: Stage) => Promise<void>): Rule {
  return { name, needs: [], body };
}

/** A rule that is seen only under faults: `body` uses no others than those of `needs`. */
export function ruleUnder<F extends StoreFault>(
  needs: readonly F[],
  name: string,
  body: (stage: Stage, faults: Pick<StoreFaults, F>) => Promise<void>,
): Rule {
  return { name, needs, body };
}

export function casesOf(rules: readonly Rule[], world: LockBackendWorld): readonly LockBackendCase[] {
  const { faults = {} } = world;
  return rules.map(({ name, needs, body }) => {
    const missing = needs.filter((need) => faults[need] === undefined);
    const run = async (): Promise<void> => {
      if (missing.length > 0) throw new Error(`The world cannot ${missing.join(', ')}: skip the case "${name}"`);
      const stage = new Stage(world);
      try {
        await body(stage, faults as StoreFaults);
      } finally {
        await stage.end();
      }
    };
    return { name, needs, missing, run };
  });
}
