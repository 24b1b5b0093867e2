import { isDeepStrictEqual } from 'node:util';
import { Inject, Injectable, Logger, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { LimitedLog } from '../../errors/limited-log.js';
import { secondsTaken } from '../../cache/options/seconds-check.js';
import { byTemplate, notedMethods, type PresentMethod } from './noted-methods.js';

/** Warns at start-up of methods of the application whose caching is probably a mistake. */
@Injectable()
export class CachedMethodsCheck implements OnModuleInit {
  private readonly logger = new LimitedLog(new Logger('RedisLock'));

  constructor(@Inject(DiscoveryService) private readonly discovery: DiscoveryService) {}

  onModuleInit(): void {
    const methods = notedMethods(this.discovery).filter(({ decorator }) => decorator !== 'Idempotent');
    for (const method of methods) {
      const { decorator, name, options } = method;
      for (const line of secondsTaken(options)) this.warn(`@${decorator} of ${name}: ${line}`);
      if (hasOneKeyForAll(method)) {
        this.warn(
          `${name} is cached under one key, "${method.template}", whatever its arguments are: name them in it, as in ` +
            `"${method.template}:<0>"; where the result does not depend on them, give () => '${method.template}'`,
        );
      }
    }
    for (const [template, sharing] of byTemplate(methods.filter(({ decorator }) => decorator === 'Cached'))) {
      if (sharing.length > 1) this.warn(sharedTemplate(template, sharing));
    }
  }

  /** No two lines are of one kind. */
  private warn(line: string): void {
    this.logger.warn(line, line);
  }
}

/** A `@CachePut` without placeholders may be meant: `@CachePut('settings')` stores the only value. */
function hasOneKeyForAll({ decorator, template, parameters }: PresentMethod): boolean {
  return decorator === 'Cached' && parameters > 0 && template !== undefined && !template.includes('<');
}

function sharedTemplate(template: string, methods: readonly PresentMethod[]): string {
  const who = `${methods.map(({ name }) => name).join(' and ')} are cached under one key template, "${template}"`;
  const differing = optionsThatDiffer(methods);
  if (differing.length === 0) {
    return `${who}, so each returns what the other has loaded: give one of them another key, or both a key function if that is intended`;
  }
  return (
    `${who}, with different options (${differing.join(', ')}): only those of the call that loads apply; give both ` +
    'the same options, or different keys'
  );
}

function optionsThatDiffer(methods: readonly PresentMethod[]): string[] {
  const names = new Set(methods.flatMap(({ options }) => Object.keys(options)));
  return [...names].filter((name) => !methods.every(({ options }) => isSame(options[name], methods[0]?.options[name])));
}

/** Compares functions by their text: the same function written twice makes two objects. */
function isSame(one: unknown, other: unknown): boolean {
  if (typeof one === 'function' && typeof other === 'function') return String(one) === String(other);
  return isDeepStrictEqual(one, other);
}
