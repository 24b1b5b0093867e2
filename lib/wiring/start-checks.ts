import { isDeepStrictEqual } from 'node:util';
import { Inject, Injectable, Logger, type OnModuleInit, type OnApplicationBootstrap } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { secondsTaken } from '../cache/options/entry-settings.js';
import { LimitedLog } from '../errors/limited-log.js';
import { PrimitiveConfigError } from '../errors/primitive-errors.js';
import { LockBackends } from '../lock/line/lock-backends.js';
import { LeaderElection } from '../primitives/leader/leader-election.js';
import type { CandidateOptions } from '../primitives/leader/standing-candidacy.js';
import { byTemplate, notedMethods, prototypesOf, type PresentMethod } from './noted-methods.js';

/**
 * What becomes of the decorated methods of an application when it starts: warnings of what is probably a mistake in
 * caching, in idempotency and in names of backends, and a candidate for each leadership.
 */

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
      if (isCachedUnderOneKey(method)) {
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
function isCachedUnderOneKey({ decorator, template, parameters }: PresentMethod): boolean {
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

/** Warns at start-up of `@Idempotent` methods whose calls would repeat the result of another call by mistake. */
@Injectable()
export class IdempotentMethodsCheck implements OnModuleInit {
  private readonly logger = new LimitedLog(new Logger('RedisLock'));

  constructor(@Inject(DiscoveryService) private readonly discovery: DiscoveryService) {}

  onModuleInit(): void {
    const methods = notedMethods(this.discovery).filter(({ decorator }) => decorator === 'Idempotent');
    for (const [template, sharing] of byTemplate(methods)) {
      const names = sharing.map(({ name }) => name).join(' and ');
      if (sharing.length > 1) {
        this.warn(
          `${names} are idempotent under one key template, "${template}", so each repeats what the other has answered: give ` +
            'each a key of its own',
        );
      } else if (sharing.some(isAnsweredUnderOneKey)) {
        this.warn(
          `${names} is idempotent under one key, "${template}", whatever its arguments are, so each call repeats the first: ` +
            `name them in it, as in "${template}:<0>"; where that is meant, give () => '${template}'`,
        );
      }
    }
  }

  /** No two lines are of one kind. */
  private warn(line: string): void {
    this.logger.warn(line, line);
  }
}

/** Whether each call repeats the answer of the first. With a fingerprint, one with other arguments is refused. */
function isAnsweredUnderOneKey({ template, parameters, options }: PresentMethod): boolean {
  return parameters > 0 && !template?.includes('<') && options['fingerprint'] === undefined;
}

/** A method whose decorator names a backend. */
interface NotedBackend {
  /** `@Decorator of Class.method` */
  readonly place: string;
  readonly backend: string;
}

/** Not of the global registry: another copy of the package has a check, and backends, of its own. */
const NOTED_BACKENDS = Symbol('named backends');

/** Called at decoration, with the prototype of the class. */
export function noteNamedBackend(target: object, noted: NotedBackend): void {
  Reflect.defineMetadata(NOTED_BACKENDS, [...namedBackendsOf(target), noted], target);
}

/**
 * Warns at start-up of decorators that name a backend which the application does not have: their calls will throw
 * `LockConfigError`.
 */
@Injectable()
export class NamedBackendsCheck implements OnModuleInit {
  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(LockBackends) private readonly backends: LockBackends,
  ) {}

  onModuleInit(): void {
    const modules = this.discovery.getProviders().filter(({ token }) => token === LockBackends);
    // Which of several modules serves a method is not known here.
    if (modules.length > 1) return;
    for (const { place, backend } of new Set([...prototypesOf(this.discovery)].flatMap(namedBackendsOf))) {
      if (this.backends.has(backend)) continue;
      const line = `${place}: ${this.backends.unknown(backend).message}; each call throws this`;
      // No two lines are of one kind.
      this.backends.logger.warn(line, line);
    }
  }
}

/** Those of the class and of the classes that it extends. */
function namedBackendsOf(prototype: object): readonly NotedBackend[] {
  return (Reflect.getMetadata(NOTED_BACKENDS, prototype) as NotedBackend[] | undefined) ?? [];
}

/** A leadership that a method of the application needs. */
interface NotedLeadership {
  readonly name: string;
  /** `Class.method` */
  readonly place: string;
  readonly options: MethodOptions;
}

type MethodOptions = Pick<CandidateOptions, 'lease' | 'backend'>;

const NOTED_LEADERSHIPS = Symbol.for('nest-redis-lock:noted-leaderships');

/** Called at decoration, with the prototype of the class. */
export function noteLeadership(target: object, noted: NotedLeadership): void {
  Reflect.defineMetadata(NOTED_LEADERSHIPS, [...leadershipsOf(target), noted], target);
}

/** Makes the application stand for each leadership that its `@OnlyLeader` methods name, when it has started. */
@Injectable()
export class OnlyLeaderCandidates implements OnApplicationBootstrap {
  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(LeaderElection) private readonly election: LeaderElection,
  ) {}

  /** @throws PrimitiveConfigError where two methods give one leadership different options */
  onApplicationBootstrap(): void {
    const byName = new Map<string, NotedLeadership[]>();
    for (const prototype of prototypesOf(this.discovery)) {
      for (const noted of leadershipsOf(prototype)) {
        const same = byName.get(noted.name);
        if (same) same.push(noted);
        else byName.set(noted.name, [noted]);
      }
    }
    const leaderships = Array.from(byName, ([name, noted]) => ({ name, options: commonOptions(name, noted) }));
    for (const { name, options } of leaderships) this.election.candidacyFor(name, options);
  }
}

/** What the methods of one leadership give together. @throws PrimitiveConfigError where they differ */
function commonOptions(name: string, leaderships: readonly NotedLeadership[]): MethodOptions {
  const lease = giving('lease', name, leaderships)?.lease;
  const backend = giving('backend', name, leaderships)?.backend;
  return { ...(lease !== undefined && { lease }), ...(backend !== undefined && { backend }) };
}

/** The options of the first method that gives this one. @throws PrimitiveConfigError where another one differs */
function giving(
  option: keyof MethodOptions,
  name: string,
  leaderships: readonly NotedLeadership[],
): MethodOptions | undefined {
  const [first, ...others] = leaderships.filter(({ options }) => options[option] !== undefined);
  const given = first?.options[option];
  const other = others.find(({ options }) => options[option] !== given);
  if (!first || !other) return first?.options;
  throw new PrimitiveConfigError(
    `@OnlyLeader("${name}") has the ${option} ${given} on ${first.place}, but ${other.options[option]} on ` +
      `${other.place}; give both the same, or leave it out of one`,
  );
}

/** Those of the class and of the classes that it extends. */
function leadershipsOf(prototype: object): readonly NotedLeadership[] {
  return (Reflect.getMetadata(NOTED_LEADERSHIPS, prototype) as NotedLeadership[] | undefined) ?? [];
}
