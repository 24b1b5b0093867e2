import { isDeepStrictEqual } from 'node:util';
import { Inject, Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { secondsTaken } from '../../cache/options/seconds-check.js';
import { notedMethods, type PresentMethod } from './noted-methods.js';

/** Warns at start-up of methods of the application that can hardly be cached as they are meant to be. */
@Injectable()
export class CachedMethodsCheck implements OnModuleInit {
  private readonly logger = new Logger('RedisLock');

  constructor(@Inject(DiscoveryService) private readonly discovery: DiscoveryService) {}

  onModuleInit(): void {
    const methods = notedMethods(this.discovery);
    for (const method of methods) {
      const { decorator, name, options } = method;
      for (const line of secondsTaken(options)) this.logger.warn(`@${decorator} of ${name}: ${line}`);
      if (hasOneKeyForAll(method)) {
        this.logger.warn(
          `${name} is cached under one key, "${method.template}", whatever its arguments are: name them in it, as in ` +
            `"${method.template}:<0>"; where the result does not depend on them, give () => '${method.template}'`,
        );
      }
    }
    for (const [template, sharing] of byTemplate(methods)) {
      if (sharing.length > 1) this.logger.warn(sharedTemplate(template, sharing));
    }
  }
}

/** A `@CachePut` may store the one value that there is: `@CachePut('settings')`. */
function hasOneKeyForAll({ decorator, template, parameters }: PresentMethod): boolean {
  return decorator === 'Cached' && parameters > 0 && template !== undefined && !template.includes('<');
}

function byTemplate(methods: readonly PresentMethod[]): Map<string, PresentMethod[]> {
  const found = new Map<string, PresentMethod[]>();
  for (const method of methods) {
    if (method.decorator !== 'Cached' || method.template === undefined) continue;
    const same = found.get(method.template);
    if (same) same.push(method);
    else found.set(method.template, [method]);
  }
  return found;
}

function sharedTemplate(template: string, methods: readonly PresentMethod[]): string {
  const who = `${methods.map(({ name }) => name).join(' and ')} are cached under one key template, "${template}"`;
  const differing = optionsThatDiffer(methods);
  if (differing.length === 0) {
    return `${who}, so that each answers with what the other has loaded: give one of them another key; where that is meant, give both a key function`;
  }
  return (
    `${who}, with different options (${differing.join(', ')}): those of the call that loads apply; give both the same, ` +
    'or another key'
  );
}

function optionsThatDiffer(methods: readonly PresentMethod[]): string[] {
  const names = new Set(methods.flatMap(({ options }) => Object.keys(options)));
  return [...names].filter((name) => !methods.every(({ options }) => isSame(options[name], methods[0]?.options[name])));
}

/** Functions are taken for the same by their text: written twice, they are two objects. */
function isSame(one: unknown, other: unknown): boolean {
  if (typeof one === 'function' && typeof other === 'function') return String(one) === String(other);
  return isDeepStrictEqual(one, other);
}
