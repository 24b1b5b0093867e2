import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Inject, type DynamicModule, type Type } from '@nestjs/common';
import type { InjectedService } from './injected-services.js';
import { LockConfigError } from '../../errors/lock-errors.js';

/** One copy of this package in the process: two versions, or the same one as CommonJS and as ES module. */
interface PackageCopy {
  /** The folder of its code. */
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
const INJECTED_PROPERTIES = 'self:properties_metadata';

const copies = ((globalThis as { [COPIES]?: Map<string, PackageCopy> })[COPIES] ??= new Map());
const thisCopy: PackageCopy = { path: pathOfThisFile(), configured: false };
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
    `${configured.path}; let both import one copy: the same version, and either require() or import for both`
  );
}

/** @throws LockConfigError if only another copy has a module in an application */
function available(token: Type, target: object): Type {
  const other = thisCopy.configured ? undefined : [...copies.values()].find(({ configured }) => configured);
  if (other) throw new LockConfigError(twoCopies(`The class ${target.constructor.name}`, thisCopy, other));
  return token;
}

/** From the stack, because the CommonJS build has no import.meta and the other one no __dirname. */
function pathOfThisFile(): string {
  const place = /(?:\(|at )((?:file:|\/|[A-Za-z]:[\\/]).*?):\d+:\d+\)?$/m.exec(String(new Error('place').stack))?.[1];
  if (place === undefined) return '(unknown folder)';
  const file = place.startsWith('file:') ? fileURLToPath(place) : place;
  return resolve(dirname(file), '../..');
}
