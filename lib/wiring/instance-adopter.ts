import { fileURLToPath } from 'node:url';
import { Inject, Injectable, type OnModuleInit, type Type, type DynamicModule } from '@nestjs/common';
import { DiscoveryService, ModuleRef } from '@nestjs/core';
import { LockConfigError } from '../errors/lock-errors.js';
import { LockBackends } from '../lock/line/lock-backends.js';
import { INJECTED, type InjectedService } from './injected-services.js';

/**
 * How an instance gets the services that its decorated methods need. Nest injects them where it makes the instance; at
 * the start, the adopter gives them to instances that others have made. Both tell where another copy of this package is
 * in the way.
 */

/** Where Nest notes the properties of a class into which it injects. */
const INJECTED_PROPERTIES = 'self:properties_metadata';

/** Makes Nest inject the service into its property of the class; once. */
export function injectProperty(target: object, { property, token }: InjectedService<unknown>): void {
  if (Object.hasOwn(target, property)) return;
  Object.defineProperty(target, property, { value: undefined, writable: true, configurable: true });
  Reflect.defineMetadata(property, { token, copy: thisCopy } satisfies Decoration, target);
  Inject(token)(target, property);
  // Nest reads the type when it injects. For another copy it would only report that the property is not available.
  const injected = Reflect.getMetadata(INJECTED_PROPERTIES, target.constructor) as { key: unknown }[] | undefined;
  const entry = injected?.find(({ key }) => key === property);
  if (entry) Object.defineProperty(entry, 'type', { enumerable: true, get: () => available(token, target) });
}

/** @throws LockConfigError if only another copy has a module in an application */
function available(token: Type, target: object): Type {
  const other = thisCopy.configured ? undefined : [...copies.values()].find(({ configured }) => configured);
  if (other) throw new LockConfigError(twoCopies(`The class ${target.constructor.name}`, thisCopy, other));
  return token;
}

type Provider = ReturnType<DiscoveryService['getProviders']>[number];

/** What the injected services have in common. */
interface Service {
  readonly closed: boolean;
}

type Adoptable = Record<symbol, Service | undefined>;

/** A service, and a class into which Nest injects it as it would into classes of the instance's module. */
interface Need {
  readonly injected: InjectedService<Service>;
  readonly injection: Type<{ readonly service: Service }>;
}

const NEEDS: readonly Need[] = INJECTED.map(needOf);

/**
 * Gives the services to instances with decorated methods that Nest did not construct and so could not inject into:
 * those of `useFactory` and `useValue` providers.
 */
@Injectable()
export class InstanceAdopter implements OnModuleInit {
  private adopted: Promise<void> | undefined;

  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(LockBackends) private readonly backends: LockBackends,
  ) {}

  /** Runs before other hooks: Nest initialises modules below the root first, and a global module before all others. */
  onModuleInit(): Promise<void> {
    return (this.adopted ??= this.adoptAll());
  }

  private async adoptAll(): Promise<void> {
    this.warnOfSeveralModules();
    for (const provider of this.discovery.getProviders()) {
      if (!provider.isNotMetatype || provider.isAlias) continue;
      for (const need of NEEDS) {
        if (isAdoptable(provider.instance, need.injected)) await this.adopt(provider, provider.instance, need);
      }
    }
  }

  /** Only the first module warns. */
  private warnOfSeveralModules(): void {
    const modules = this.discovery.getProviders().filter(({ token }) => token === LockBackends);
    if (modules.length < 2 || modules[0]?.instance !== this.backends) return;
    this.backends.logger.warn(
      `RedisLockModule is imported with options ${modules.length} times, and each import has a LockService of its own: a call ` +
        'that holds a lock of one and asks another for the same name waits for itself until its `wait` is over. Import ' +
        'forRoot() once, in the root module; for several servers, use the option "backends"',
    );
  }

  private async adopt(provider: Provider, instance: Adoptable, need: Need): Promise<void> {
    const { property, token, decorators, ConfigError } = need.injected;
    const foreign = foreignDecoration(instance, need.injected);
    if (foreign) {
      // The module of that copy gives it its services.
      if (this.discovery.getProviders().some((each) => each.token === foreign.token)) return;
      throw new ConfigError(twoCopies(nameOf(provider), foreign.copy));
    }
    const service = await serviceFor(provider, need);
    const present = instance[property];
    if (present === service) return;
    const name = nameOf(provider);
    if (present && !present.closed) {
      this.backends.logger.warn(`${name} has the ${token.name} of another application or module already, and keeps it`);
      return;
    }
    if (!Reflect.set(instance, property, service)) {
      throw new ConfigError(
        `${name} has methods with ${decorators}, but is frozen, so that it cannot be given the ` +
          `${token.name}; provide it unfrozen, or as a class`,
      );
    }
  }
}

function isAdoptable(instance: unknown, { property }: InjectedService<Service>): instance is Adoptable {
  return typeof instance === 'object' && instance !== null && property in instance;
}

/** The service that Nest injects into the instances of the provider's module; `undefined` if it has none for them. */
export async function serviceAt(provider: Provider, injected: InjectedService<Service>): Promise<Service | undefined> {
  const need = NEEDS.find((each) => each.injected === injected) as Need;
  return serviceFor(provider, need).catch(() => undefined);
}

async function serviceFor({ host }: Provider, { injection }: Need): Promise<Service> {
  const moduleRef = host?.getProviderByKey<ModuleRef>(ModuleRef).instance as ModuleRef;
  return (await moduleRef.create(injection)).service;
}

function needOf(injected: InjectedService<Service>): Need {
  @Injectable()
  class Injection {
    constructor(@Inject(injected.token) readonly service: Service) {}
  }
  return { injected, injection: Injection };
}

function nameOf({ name, instance }: Provider): string {
  return `The provider ${String(name)} (${(instance as object).constructor.name})`;
}

/** One copy of this package in the process: dependencies of an application may install two versions. */
interface PackageCopy {
  /** Its folder. */
  readonly path: string;
  /** Whether an application has its module. */
  configured: boolean;
}

/** What a decorator records on a class. */
interface Decoration {
  readonly token: Type;
  readonly copy: PackageCopy;
}

const COPIES = Symbol.for('nest-redis-lock:copies');

const copies = ((globalThis as { [COPIES]?: Map<string, PackageCopy> })[COPIES] ??= new Map());
const thisCopy: PackageCopy = { path: folderOfThisPackage(), configured: false };
// A copy that is loaded again from the same folder replaces the former, as after jest.resetModules().
copies.set(thisCopy.path, thisCopy);

/** A module definition that records when an application reads its imports, which Nest does first. */
export function notedAtBoot(definition: DynamicModule): DynamicModule {
  return {
    ...definition,
    get imports() {
      thisCopy.configured = true;
      return definition.imports ?? [];
    },
  };
}

/** The token and the copy of an instance's decorators, if they belong to another copy of this package. */
export function foreignDecoration(
  instance: object,
  { property, token }: InjectedService<unknown>,
): Decoration | undefined {
  const decoration = Reflect.getMetadata(property, instance) as Decoration | undefined;
  return decoration?.token === token ? undefined : decoration;
}

/** The error text for `name`, decorated with one copy while the module belongs to another. */
export function twoCopies(name: string, decorated: PackageCopy, configured: PackageCopy = thisCopy): string {
  return (
    `${name} is decorated with the copy of nest-redis-lock in ${decorated.path}, but RedisLockModule is imported from the copy in ` +
    `${configured.path}; let both import one copy, of the same version`
  );
}

/** The build is in its folder `dist`. */
function folderOfThisPackage(): string {
  return fileURLToPath(import.meta.url).replace(/^(.*)[\\/](?:dist|lib)[\\/].*$/, '$1');
}
