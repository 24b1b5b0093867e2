import { Inject, Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService, ModuleRef } from '@nestjs/core';
import { LockConfigError } from '../lock/lock-errors.js';
import { LockService } from '../lock/lock.service.js';
import { LOCK_SERVICE } from './distributed-lock.interceptor.js';

type Provider = ReturnType<DiscoveryService['getProviders']>[number];
type Adoptable = { [LOCK_SERVICE]?: LockService };

/**
 * Gives the `LockService` to instances with decorated methods that Nest did not construct, and so could not inject into:
 * those of `useFactory` and `useValue` providers.
 */
@Injectable()
export class InstanceAdopter implements OnModuleInit {
  private readonly logger = new Logger('RedisLock');

  constructor(@Inject(DiscoveryService) private readonly discovery: DiscoveryService) {}

  /** Modules below the root are initialised first, and a global one before all: no other hook has run yet. */
  async onModuleInit(): Promise<void> {
    for (const provider of this.discovery.getProviders()) {
      if (provider.isNotMetatype && !provider.isAlias && isAdoptable(provider.instance))
        await this.adopt(provider, provider.instance);
    }
  }

  private async adopt(provider: Provider, instance: Adoptable): Promise<void> {
    const locks = await lockServiceFor(provider);
    const present = instance[LOCK_SERVICE];
    if (present === locks) return;
    const name = nameOf(provider);
    if (present && !present.closed) {
      this.logger.warn(`${name} has the LockService of another application or module already, and keeps it`);
      return;
    }
    if (!Reflect.set(instance, LOCK_SERVICE, locks)) {
      throw new LockConfigError(
        `${name} has methods with @DistributedLock, but is frozen, so that it cannot be given the LockService; ` +
          'provide it unfrozen, or as a class',
      );
    }
  }
}

function isAdoptable(instance: unknown): instance is Adoptable {
  return typeof instance === 'object' && instance !== null && LOCK_SERVICE in instance;
}

/** What Nest would inject into a class of the same module. */
async function lockServiceFor({ host }: Provider): Promise<LockService> {
  const moduleRef = host?.getProviderByKey<ModuleRef>(ModuleRef).instance as ModuleRef;
  const { locks } = await moduleRef.create(LockServiceInjection);
  return locks;
}

@Injectable()
class LockServiceInjection {
  constructor(@Inject(LockService) readonly locks: LockService) {}
}

function nameOf({ name, instance }: Provider): string {
  return `The provider ${String(name)} (${(instance as object).constructor.name})`;
}
