import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockBackend } from '../contracts/lock-backend.js';
import type { Lock } from '../lock/hold/lock.js';
import type { LockService } from '../lock/lock.service.js';
import { COMMAND_TIMEOUT, StoreClient } from './store-client.js';
import { testServices } from './wire.js';

/** How long (ms) a case waits for what must come: the machine may be slow. */
const PATIENCE = 30_000;

/** What one case uses: backends, processes and services that end with it, and names that no other case has. */
export class Stage {
  /** A name of this case. */
  readonly name = `conformance:${randomUUID()}`;
  private readonly backends = new Set<LockBackend>();
  private readonly services: (() => Promise<void>)[] = [];

  constructor(
    private readonly world: LockBackendWorld,
    private readonly roles: readonly BackendRole[],
  ) {}

  /** The roles that the backend leaves out, as its world says. */
  get without(): readonly BackendRole[] {
    return this.world.without ?? [];
  }

  async backend(): Promise<LockBackend> {
    const backend = await this.world.open();
    this.backends.add(backend);
    return backend;
  }

  /** A process that sends single requests. */
  async client(prefix?: string): Promise<StoreClient> {
    const client = new StoreClient(await this.backend(), prefix);
    const lacks = this.roles.find((role) => rolesWithout(client).includes(role));
    if (lacks)
      assert.fail(`the backend has no "${lacks}": name it in \`without\` of the world, if it is to be left out`);
    return client;
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
  /** Starts another process, in which `testServices({ backend }).answerCases()` runs. The cases kill it. */
  fork(): ChildProcess | Promise<ChildProcess>;
}

/** The name of a fault. */
export type StoreFault = keyof StoreFaults;

/**
 * What a backend may leave out. `queue`: one that sends messages, without `pace`. `ttl`: leases that end by themselves;
 * the others are methods of `LockStore`.
 */
export type BackendRole = 'acquireSeveral' | 'downgrade' | 'forceRelease' | 'keep' | 'label' | 'list' | 'queue' | 'ttl';

/** One store, and how to reach it. */
export interface LockBackendWorld {
  /**
   * Opens a backend at the store, with connections of its own, as another process would. The suite closes it. A backend
   * in memory answers the same instance.
   */
  open(): LockBackend | Promise<LockBackend>;
  readonly faults?: Partial<StoreFaults>;
  /** The roles that the backend leaves out. A case fails where the backend has one of them, or lacks another one. */
  readonly without?: readonly BackendRole[];
}

/** One rule that every backend keeps. */
export interface LockBackendCase {
  /** A sentence about the backend. */
  readonly name: string;
  /** The faults that the case makes. */
  readonly needs: readonly StoreFault[];
  /** The faults that the world cannot make, and the roles that the backend leaves out: report the case as skipped. */
  readonly missing: readonly (StoreFault | BackendRole)[];
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
  readonly roles: readonly BackendRole[];
  readonly body: (stage: Stage, faults: StoreFaults) => Promise<void>;
}

export function rule(name: string, body: (stage: Stage) => Promise<void>): Rule {
  return { name, needs: [], roles: [], body };
}

/** A rule of those backends alone that have the roles. */
export function ruleOf(
  roles: BackendRole | readonly BackendRole[],
  name: string,
  body: (stage: Stage) => Promise<void>,
): Rule {
  return { name, needs: [], roles: typeof roles === 'string' ? [roles] : roles, body };
}

/** The roles that a backend leaves out, sorted. */
export function rolesWithout({ store, backend }: StoreClient): readonly BackendRole[] {
  const { queue } = store;
  const left: BackendRole[] = METHODS.filter((method) => store[method] === undefined);
  if (!queue || queue.pace) left.push('queue');
  if (backend.traits.lease !== 'ttl') left.push('ttl');
  return left;
}

const METHODS = ['acquireSeveral', 'downgrade', 'forceRelease', 'keep', 'label', 'list'] as const;

/** A rule that is seen only under faults: `body` uses no others than those of `needs`. */
export function ruleUnder<F extends StoreFault>(
  needs: readonly F[],
  name: string,
  body: (stage: Stage, faults: Pick<StoreFaults, F>) => Promise<void>,
): Rule {
  return { name, needs, roles: [], body };
}

export function casesOf(rules: readonly Rule[], world: LockBackendWorld): readonly LockBackendCase[] {
  const { faults = {}, without = [] } = world;
  return rules.map(({ name, needs, roles, body }) => {
    const unable = needs.filter((need) => faults[need] === undefined);
    const missing = [...unable, ...roles.filter((role) => without.includes(role))];
    const run = async (): Promise<void> => {
      if (missing.length > 0) throw new Error(`The world has no ${missing.join(', ')}: skip the case "${name}"`);
      const stage = new Stage(world, roles);
      try {
        await body(stage, faults as StoreFaults);
      } finally {
        await stage.end();
      }
    };
    return { name, needs, missing, run };
  });
}
