import { isDeepStrictEqual } from 'node:util';
import { Inject, Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';

/** A method with `@Cached` and a key template. */
export interface TemplatedMethod {
  /** `Class.method` */
  readonly name: string;
  readonly template: string;
  readonly options: object;
}

const TEMPLATED_METHODS = Symbol.for('nest-redis-lock:templated-methods');

/** Called at decoration, with the prototype of the class. */
export function noteTemplatedMethod(target: object, method: TemplatedMethod): void {
  const noted = methodsOn(target);
  Reflect.defineMetadata(TEMPLATED_METHODS, [...noted, method], target);
}

/** Warns where methods of the application share a key template and not their options: which apply is then a matter of luck. */
@Injectable()
export class CachedOptionsCheck implements OnModuleInit {
  private readonly logger = new Logger('RedisLock');

  constructor(@Inject(DiscoveryService) private readonly discovery: DiscoveryService) {}

  onModuleInit(): void {
    for (const [template, methods] of this.methodsByTemplate()) {
      const differing = optionsThatDiffer(methods);
      if (differing.length === 0) continue;
      this.logger.warn(
        `${methods.map(({ name }) => name).join(' and ')} are cached under one key template, "${template}", with different ` +
          `options (${differing.join(', ')}): those of the call that loads apply; give both the same, or another key`,
      );
    }
  }

  private methodsByTemplate(): Map<string, TemplatedMethod[]> {
    const byTemplate = new Map<string, TemplatedMethod[]>();
    for (const method of this.methods()) {
      const same = byTemplate.get(method.template);
      if (same) same.push(method);
      else byTemplate.set(method.template, [method]);
    }
    return byTemplate;
  }

  private methods(): Set<TemplatedMethod> {
    const methods = new Set<TemplatedMethod>();
    for (const provider of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      const { isNotMetatype, metatype } = provider;
      let object: unknown = isNotMetatype ? provider.instance : metatype?.prototype;
      for (; typeof object === 'object' && object !== null; object = Object.getPrototypeOf(object)) {
        for (const method of methodsOn(object)) methods.add(method);
      }
    }
    return methods;
  }
}

function methodsOn(target: object): readonly TemplatedMethod[] {
  return (Reflect.getOwnMetadata(TEMPLATED_METHODS, target) as TemplatedMethod[] | undefined) ?? [];
}

function optionsThatDiffer(methods: readonly TemplatedMethod[]): string[] {
  const all = methods.map(({ options }) => options as Readonly<Record<string, unknown>>);
  const names = new Set(all.flatMap((options) => Object.keys(options)));
  return [...names].filter((name) => !all.every((options) => isSame(options[name], all[0]?.[name])));
}

/** Functions are taken for the same by their text: written twice, they are two objects. */
function isSame(one: unknown, other: unknown): boolean {
  if (typeof one === 'function' && typeof other === 'function') return String(one) === String(other);
  return isDeepStrictEqual(one, other);
}
