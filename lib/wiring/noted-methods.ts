import type { DiscoveryService } from '@nestjs/core';

/** A method with `@Cached`, `@CachePut` or `@Idempotent`, as the checks at start-up need it. */
interface NotedMethod {
  readonly decorator: 'Cached' | 'CachePut' | 'Idempotent';
  readonly property: string | symbol;
  /** `undefined` if a function makes the key. */
  readonly template: string | undefined;
  readonly parameters: number;
  readonly options: Readonly<Record<string, unknown>>;
}

/** The same in a class of the application, whether declared there or inherited. */
export interface PresentMethod extends NotedMethod {
  /** `Class.method` */
  readonly name: string;
}

const NOTED_METHODS = Symbol.for('nest-redis-lock:noted-methods');

/** Called at decoration, with the prototype of the class. */
export function noteMethod(
  target: object,
  property: string | symbol,
  method: Omit<NotedMethod, 'property' | 'parameters'>,
): void {
  const types = Reflect.getMetadata('design:paramtypes', target, property) as unknown[] | undefined;
  const { length } = (target as Record<string | symbol, (...args: unknown[]) => unknown>)[property] ?? [];
  const noted = { ...method, property, parameters: types?.length ?? length };
  Reflect.defineMetadata(NOTED_METHODS, [...methodsOn(target), noted], target);
}

/**
 * The noted methods of the application's instances, each once. A method that several classes inherit from a class
 * without instances of its own, such as an abstract one, counts once for each of them.
 */
export function notedMethods(discovery: DiscoveryService): PresentMethod[] {
  const found = new Map<NotedMethod, { declaring: object; present: Set<object> }>();
  for (const prototype of prototypesOf(discovery)) {
    for (const { method, declaring } of methodsOf(prototype)) {
      const known = found.get(method);
      if (known) known.present.add(prototype);
      else found.set(method, { declaring, present: new Set([prototype]) });
    }
  }
  return [...found].flatMap(([method, { declaring, present }]) =>
    (present.has(declaring) ? [declaring] : [...present]).map((prototype) => ({
      ...method,
      name: `${prototype.constructor.name}.${String(method.property)}`,
    })),
  );
}

/** Those whose key is made of a template, by that. */
export function byTemplate(methods: readonly PresentMethod[]): Map<string, PresentMethod[]> {
  const found = new Map<string, PresentMethod[]>();
  for (const method of methods) {
    if (method.template === undefined) continue;
    const same = found.get(method.template);
    if (same) same.push(method);
    else found.set(method.template, [method]);
  }
  return found;
}

/** The prototypes of all providers and controllers of the application. */
export function prototypesOf(discovery: DiscoveryService): Set<object> {
  const prototypes = new Set<object>();
  for (const provider of [...discovery.getProviders(), ...discovery.getControllers()]) {
    const { isNotMetatype, metatype } = provider;
    const instance: unknown = isNotMetatype ? provider.instance : undefined;
    const found: unknown = isNotMetatype ? isObject(instance) && Object.getPrototypeOf(instance) : metatype?.prototype;
    if (isObject(found)) prototypes.add(found);
  }
  return prototypes;
}

function methodsOf(prototype: object): { method: NotedMethod; declaring: object }[] {
  const methods: { method: NotedMethod; declaring: object }[] = [];
  const overridden = new Set<string | symbol>();
  for (let object: unknown = prototype; isObject(object); object = Object.getPrototypeOf(object)) {
    for (const method of methodsOn(object)) {
      if (!overridden.has(method.property)) methods.push({ method, declaring: object });
    }
    for (const property of Reflect.ownKeys(object)) overridden.add(property);
  }
  return methods;
}

function methodsOn(target: object): readonly NotedMethod[] {
  return (Reflect.getOwnMetadata(NOTED_METHODS, target) as NotedMethod[] | undefined) ?? [];
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
