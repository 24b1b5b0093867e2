import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockBackend } from '../../contracts/lock-backend.js';
import type { LockService } from '../../lock/lock.service.js';
import { testServices } from '../wire.js';
import { StoreClient } from './store-client.js';
import type { LockBackendWorld } from './world.js';

/** How long (ms) a case waits for what must come: the machine may be slow. */
const PATIENCE = 30_000;

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
    const services = testServices({ backend: main, cache: false, shutdownGrace: 0 });
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
