import { Inject, Injectable, Logger, type OnModuleInit, type Type } from '@nestjs/common';
import { DiscoveryService, ModuleRef } from '@nestjs/core';
import { CacheConfigError } from '../errors/cache-errors.js';
import { CacheService } from '../cache/cache.service.js';
import { LockBackends } from '../lock/backend/lock-backends.js';
import { LockConfigError } from '../errors/lock-errors.js';
import { LockService } from '../lock/lock.service.js';
import { CACHE_SERVICE } from './cache-service-property.js';
import { LOCK_SERVICE } from './distributed-lock.interceptor.js';
import { foreignDecoration, twoCopies } from './package-copy.js';

type Provider = ReturnType<DiscoveryService['getProviders']>[number];
type Service = LockService | CacheService;
type Adoptable = Record<symbol, Service | undefined>;

/** What decorated methods need of an instance. */
interface Need {
  readonly property: symbol;
  readonly decorators: string;
  readonly service: Type<Service>;
  /** Has the service injected that a class of the same module would be given. */
  readonly injection: Type<{ readonly service: Service }>;
  readonly ConfigError: new (message: string) => Error;
}

const NEEDS: readonly Need[] = [
  {
    property: LOCK_SERVICE,
    decorators: '@DistributedLock',
    service: LockService,
    injection: injectionOf(LockService),
    ConfigError: LockConfigError,
  },
  {
    property: CACHE_SERVICE,
    decorators: '@Cached, @CacheEvict or @CachePut',
    service: CacheService,
    injection: injectionOf(CacheService),
    ConfigError: CacheConfigError,
  },
];

/**
 * Gives the `LockService` and the `CacheService` to instances with decorated methods that Nest did not construct, and
 * so could not inject into: those of `useFactory` and `useValue` providers.
 */
@Injectable()
export class InstanceAdopter implements OnModuleInit {
  private readonly logger = new Logger('RedisLock');

  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(LockBackends) private readonly backends: LockBackends,
  ) {}

  /** Modules below the root are initialised first, and a global one before all: no other hook has run yet. */
  async onModuleInit(): Promise<void> {
    this.warnOfSeveralModules();
    for (const provider of this.discovery.getProviders()) {
      if (!provider.isNotMetatype || provider.isAlias) continue;
      for (const need of NEEDS) {
        if (isAdoptable(provider.instance, need)) await this.adopt(provider, provider.instance, need);
      }
    }
  }

  /** Said by the first of them. */
  private warnOfSeveralModules(): void {
    const modules = this.discovery.getProviders().filter(({ token }) => token === LockBackends);
    if (modules.length < 2 || modules[0]?.instance !== this.backends) return;
    this.logger.warn(
      `RedisLockModule is imported with options ${modules.length} times: each has a LockService of its own, and no re-entry into the ` +
        "others' locks: a call that holds a lock of one and asks another for the same name waits for itself until its `wait` is over. " +
        'Import forRoot() once, in the root module; for several servers, give "backends"',
    );
  }

  private async adopt(provider: Provider, instance: Adoptable, need: Need): Promise<void> {
    const foreign = foreignDecoration(instance, need.property, need.service);
    if (foreign) {
      // The module of that copy gives it what it needs.
      if (this.discovery.getProviders().some(({ token }) => token === foreign.token)) return;
      throw new need.ConfigError(twoCopies(nameOf(provider), foreign.copy));
    }
    const service = await serviceFor(provider, need);
    const present = instance[need.property];
    if (present === service) return;
    const name = nameOf(provider);
    if (present && !present.closed) {
      this.logger.warn(`${name} has the ${need.service.name} of another application or module already, and keeps it`);
      return;
    }
    if (!Reflect.set(instance, need.property, service)) {
      throw new need.ConfigError(
        `${name} has methods with ${need.decorators}, but is frozen, so that it cannot be given the ` +
          `${need.service.name}; provide it unfrozen, or as a class`,
      );
    }
  }
}

function isAdoptable(instance: unknown, { property }: Need): instance is Adoptable {
  return typeof instance === 'object' && instance !== null && property in instance;
}

async function serviceFor({ host }: Provider, { injection }: Need): Promise<Service> {
  const moduleRef = host?.getProviderByKey<ModuleRef>(ModuleRef).instance as ModuleRef;
  return (await moduleRef.create(injection)).service;
}

function injectionOf(token: Type<Service>): Need['injection'] {
  @Injectable()
  class Injection {
    constructor(@Inject(token) readonly service: Service) {}
  }
  return Injection;
}

function nameOf({ name, instance }: Provider): string {
  return `The provider ${String(name)} (${(instance as object).constructor.name})`;
}
