import { isDeepStrictEqual } from 'node:util';
import { Inject, Injectable, Logger, type OnModuleInit, type OnApplicationBootstrap } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { CacheService } from '../cache/cache.service.js';
import { secondsTaken } from '../cache/options/entry-settings.js';
import { LimitedLog, messageOf } from '../errors/limited-log.js';
import { LockConfigError } from '../errors/lock-errors.js';
import { PrimitiveConfigError } from '../errors/primitive-errors.js';
import { LockBackends } from '../lock/line/lock-backends.js';
import { IdempotencyService } from '../primitives/idempotency/idempotency.service.js';
import { LeaderElection } from '../primitives/leader/leader-election.js';
import type { CandidateOptions } from '../primitives/leader/standing-candidacy.js';
import { ScheduledJobs } from '../primitives/schedule/scheduled-jobs.js';
import { CACHE, IDEMPOTENCY, JOBS, LEADERS } from './injected-services.js';
import { InstanceAdopter, serviceAt } from './instance-adopter.js';
import {
  keyOfBoth,
  MethodNotes,
  ownedMethods,
  prototypesOf,
  type KeysOnInstance,
  type NotedDecorator,
  type OwnedMethod,
} from './noted-methods.js';

/**
 * What becomes of the decorated methods of an application when it starts: a refusal where methods would repeat or skip
 * the work of others, warnings of what is probably a mistake, and a candidate for each leadership.
 */

/** Looks at start-up for decorated methods that are probably a mistake. */
@Injectable()
export class DecoratedMethodsCheck implements OnModuleInit {
  private readonly logger = new LimitedLog(new Logger('RedisLock'));
  /** The services of this module, by the decorators that need them. */
  private readonly services: Readonly<Record<NotedDecorator, { property: symbol; service: object }>>;

  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(InstanceAdopter) private readonly adopter: InstanceAdopter,
    @Inject(CacheService) cache: CacheService,
    @Inject(IdempotencyService) idempotency: IdempotencyService,
    @Inject(ScheduledJobs) jobs: ScheduledJobs,
  ) {
    const cached = { property: CACHE.property, service: cache };
    this.services = {
      Cached: cached,
      CachePut: cached,
      Idempotent: { property: IDEMPOTENCY.property, service: idempotency },
      ScheduledLock: { property: JOBS.property, service: jobs },
    };
  }

  /** @throws PrimitiveConfigError where `@Idempotent` or `@ScheduledLock` methods can have one key or name */
  async onModuleInit(): Promise<void> {
    // Only then has each instance of a factory or a value its services.
    await this.adopter.onModuleInit();
    const owned = ownedMethods(this.discovery).filter((each) => this.serves(each));
    const groups = groupsOf(owned);
    for (const { decorator, owners } of groups) {
      const line = mistakeOf(decorator, owners);
      if (line !== undefined) this.report(decorator, line, owners.length > 1);
    }
    for (const [index, group] of groups.entries()) {
      for (const other of groups.slice(index + 1)) {
        const line = overlapOf(group, other);
        if (line !== undefined) this.report(group.decorator, line);
      }
    }
    for (const each of owned) for (const line of mistakesOf(each)) this.warn(line);
  }

  /** Another import of the module, with a store or a prefix of its own, may serve other instances. */
  private serves({ method: { decorator }, instance }: OwnedMethod): boolean {
    const { property, service } = this.services[decorator];
    const own = (instance as Record<symbol, unknown> | undefined)?.[property];
    return own === undefined || own === service;
  }

  private report(decorator: NotedDecorator, line: string, isCertain = true): void {
    if (isCertain && WORDS[decorator].refused) throw new PrimitiveConfigError(line);
    this.warn(line);
  }

  /** No two lines are of one kind. */
  private warn(line: string): void {
    this.logger.warn(line, line);
  }
}

/** What two methods, or two instances of one, do to each other that can make the same key. */
const WORDS: Readonly<Record<NotedDecorator, { are: string; so: string; refused: boolean }>> = {
  Cached: { are: 'cached under one key template', so: 'so each returns what the other has loaded', refused: false },
  CachePut: { are: 'stored under one key template', so: 'so each replaces what the other has stored', refused: false },
  Idempotent: {
    are: 'idempotent under one key template',
    so: 'so each repeats what the other has answered',
    refused: true,
  },
  ScheduledLock: { are: 'scheduled under one name', so: 'so one does not run while the other does', refused: true },
};

/** The methods, each on its instances, that make the same keys of the same arguments. */
interface Group extends KeysOnInstance {
  readonly decorator: NotedDecorator;
  readonly owners: OwnedMethod[];
}

function groupsOf(owned: readonly OwnedMethod[]): Group[] {
  const groups: Group[] = [];
  for (const each of owned) {
    const { decorator, keysOn } = each.method;
    const keys = keysOn?.(each.instance);
    if (!keys) continue;
    const same = groups.find(
      (group) => group.decorator === decorator && group.text === keys.text && isShared(group, each, keys),
    );
    if (same) same.owners.push(each);
    else groups.push({ ...keys, decorator, owners: [each] });
  }
  return groups;
}

/**
 * Not with a backend of its own. Where instances have no value yet for a `<this.name>`, they are taken to differ in it.
 * Several methods that put one value are meant.
 */
function isShared({ decorator, owners }: Group, each: OwnedMethod, { isComplete }: KeysOnInstance): boolean {
  const [first] = owners;
  const { method } = each;
  if (owners.some((owner) => isNested(owner, each))) return false;
  if (first?.method.options['backend'] !== method.options['backend']) return false;
  return isComplete && (decorator !== 'CachePut' || first?.method === method);
}

/** A method and the one that it overrides and calls: what one does inside of the other is meant. */
function isNested(one: OwnedMethod, other: OwnedMethod): boolean {
  return one.instance === other.instance && one.name === other.name && one.method !== other.method;
}

function mistakeOf(decorator: NotedDecorator, owners: readonly OwnedMethod[]): string | undefined {
  const [first] = owners;
  if (!first || (owners.length === 1 && !isSharedByInstances(first))) return undefined;
  const methods = [...new Set(owners.map(({ method }) => method))];
  const { are, so } = WORDS[decorator];
  const { template } = first.method;
  const names = namesOf(owners);
  const who = `${names.join(' and ')} ${names.length > 1 ? 'are' : 'is'} ${are}, "${template}"`;
  const differing = decorator === 'Cached' ? optionsThatDiffer(methods) : [];
  if (differing.length > 0) {
    return (
      `${who}, with different options (${differing.join(', ')}): only those of the call that loads apply; give both ` +
      'the same options, or different keys'
    );
  }
  if (methods.length < owners.length || owners.length === 1) {
    return (
      `${who}, ${so}: put what tells the instances apart into it, as in ` +
      `"${template}:<this.${names.length > 1 ? 'constructor.' : ''}name>"` +
      (decorator === 'ScheduledLock' ? '' : ', or give a key function if that is intended')
    );
  }
  const remedy =
    decorator === 'Cached'
      ? 'give one of them another key, or both a key function if that is intended'
      : `give each a ${decorator === 'Idempotent' ? 'key' : 'name'} of its own`;
  return `${who}, ${so}: ${remedy}`;
}

/** A class that gets instances as they are needed, with a key that has nothing of the instance. */
function isSharedByInstances({ method: { decorator, keysOn }, instance }: OwnedMethod): boolean {
  return instance === undefined && decorator !== 'ScheduledLock' && keysOn?.(instance).isComplete === true;
}

/** Each once, with the number of its instances. */
function namesOf(owners: readonly OwnedMethod[]): string[] {
  return [...new Set(owners.map(({ name }) => name))].map((name) => {
    const instances = new Set(owners.filter((each) => each.name === name).map(({ instance }) => instance));
    if (instances.has(undefined)) return `${name} of several instances`;
    return instances.size > 1 ? `${name} of ${instances.size} instances` : name;
  });
}

/** A line about two groups of which some arguments make the same key; `undefined` if there are none. */
function overlapOf(one: Group, other: Group): string | undefined {
  const [first, second] = [one.owners[0]?.method, other.owners[0]?.method];
  if (!first || !second || storeOf(one) !== storeOf(other)) return undefined;
  if (first.options['backend'] !== second.options['backend']) return undefined;
  if (first === second && !one.isComplete && !other.isComplete) return undefined;
  // A value that one method caches and another puts is meant.
  if ((one.decorator === 'CachePut' || other.decorator === 'CachePut') && shapeOf(one) === shapeOf(other))
    return undefined;
  if (one.owners.every((owner) => other.owners.every((each) => isNested(owner, each)))) return undefined;
  const key = keyOfBoth(one.characters, other.characters);
  if (key === undefined) return undefined;
  const { so } = WORDS[one.decorator];
  const who = [one, other].map(({ owners }) => `${namesOf(owners).join(' and ')} ("${owners[0]?.method.template}")`);
  return `${who.join(' and ')} can make the same key, such as "${key}", ${so}: begin one of the templates with other words`;
}

function storeOf({ decorator }: Group): string {
  return decorator === 'CachePut' ? 'Cached' : decorator;
}

/** The template without the names of its values. */
function shapeOf({ text }: Group): string {
  return text.replaceAll(/<(#?)[^<>]*>/g, '<$1>');
}

/** What is probably a mistake in a method by itself. */
function mistakesOf({ method, name }: OwnedMethod): string[] {
  const { decorator, template, parameters, options } = method;
  const isOne = parameters > 0 && template !== undefined && !template.includes('<');
  const lines = decorator.startsWith('Cache') ? secondsTaken(options) : [];
  const found = lines.map((line) => `@${decorator} of ${name}: ${line}`);
  // A `@CachePut` without placeholders may be meant: `@CachePut('settings')` stores the only value.
  if (isOne && decorator === 'Cached') {
    found.push(
      `${name} is cached under one key, "${template}", whatever its arguments are: name them in it, as in ` +
        `"${template}:<0>"; where the result does not depend on them, give () => '${template}'`,
    );
  }
  // With a fingerprint, a call with other arguments is refused.
  if (isOne && decorator === 'Idempotent' && options['fingerprint'] === undefined) {
    found.push(
      `${name} is idempotent under one key, "${template}", whatever its arguments are, so each call repeats the first: ` +
        `name them in it, as in "${template}:<0>"; where that is meant, give () => '${template}'`,
    );
  }
  return found;
}

function optionsThatDiffer(methods: readonly Pick<OwnedMethod['method'], 'options'>[]): string[] {
  const names = new Set(methods.flatMap(({ options }) => Object.keys(options)));
  return [...names].filter((name) => !methods.every(({ options }) => isSame(options[name], methods[0]?.options[name])));
}

/** Compares functions by their text: the same function written twice makes two objects. */
function isSame(one: unknown, other: unknown): boolean {
  if (typeof one === 'function' && typeof other === 'function') return String(one) === String(other);
  return isDeepStrictEqual(one, other);
}

/** A method whose decorator names a backend. */
interface NotedBackend {
  /** `@Decorator of Class.method` */
  readonly place: string;
  readonly property: string | symbol;
  readonly backend: string;
}

/** Not of the global registry: another copy of the package has a check, and backends, of its own. */
const NOTED_BACKENDS = new MethodNotes<NotedBackend>(Symbol('named backends'));

/** Called at decoration, with the prototype of the class. */
export function noteNamedBackend(target: object, noted: NotedBackend): void {
  NOTED_BACKENDS.add(target, noted);
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
    const noted = [...prototypesOf(this.discovery)].flatMap((prototype) => NOTED_BACKENDS.on(prototype));
    for (const { place, backend } of new Set(noted)) {
      if (this.backends.has(backend)) continue;
      const line = `${place}: ${this.backends.unknown(backend).message}; each call throws this`;
      // No two lines are of one kind.
      this.backends.logger.warn(line, line);
    }
  }
}

/** A leadership that a method of the application needs. */
interface NotedLeadership {
  readonly name: string;
  /** `Class.method` */
  readonly place: string;
  readonly property: string | symbol;
  readonly options: MethodOptions;
}

type MethodOptions = Pick<CandidateOptions, 'lease' | 'backend'>;

const NOTED_LEADERSHIPS = new MethodNotes<NotedLeadership>(Symbol.for('nest-redis-lock:noted-leaderships'));

/** Called at decoration, with the prototype of the class. */
export function noteLeadership(target: object, noted: NotedLeadership): void {
  NOTED_LEADERSHIPS.add(target, noted);
}

/** Makes the application stand for each leadership that its `@OnlyLeader` methods name, when it has started. */
@Injectable()
export class OnlyLeaderCandidates implements OnApplicationBootstrap {
  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(LeaderElection) private readonly election: LeaderElection,
  ) {}

  /**
   * @throws PrimitiveConfigError where two methods give one leadership different options
   * @throws LockConfigError for a backend that there is none of, or that cannot grant such a lease
   */
  async onApplicationBootstrap(): Promise<void> {
    const byName = new Map<string, NotedLeadership[]>();
    for (const owned of NOTED_LEADERSHIPS.owned(this.discovery)) {
      if (!(await this.serves(owned))) continue;
      const { method } = owned;
      const same = byName.get(method.name);
      if (same) same.push(method);
      else byName.set(method.name, [method]);
    }
    const leaderships = Array.from(byName, ([name, noted]) => ({ name, noted, options: commonOptions(name, noted) }));
    for (const { name, noted, options } of leaderships) {
      try {
        this.election.candidacyFor(name, options);
      } catch (error) {
        throw ofMethods(noted, error);
      }
    }
  }

  /** Another import of the module serves other instances: who leads in its store runs nothing here. */
  private async serves({ instance, provider }: OwnedMethod<NotedLeadership>): Promise<boolean> {
    // Of those that are made as they are needed, there is none yet.
    if (!instance) return (await serviceAt(provider, LEADERS)) === this.election;
    return (instance as Record<symbol, unknown>)[LEADERS.property] === this.election;
  }
}

function ofMethods(noted: readonly NotedLeadership[], error: unknown): unknown {
  if (!(error instanceof LockConfigError || error instanceof PrimitiveConfigError)) return error;
  const places = [...new Set(noted.map(({ place }) => place))].join(' and ');
  const Same = error instanceof LockConfigError ? LockConfigError : PrimitiveConfigError;
  return new Same(`@OnlyLeader of ${places}: ${messageOf(error)}`);
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
