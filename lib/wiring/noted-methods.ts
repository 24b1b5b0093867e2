import type { DiscoveryService } from '@nestjs/core';

/** The decorators whose methods the checks at start-up look at. */
export type NotedDecorator = 'Cached' | 'CachePut' | 'Idempotent' | 'ScheduledLock';

/** How a method makes its key: `undefined` if a function does. */
export interface NotedKey {
  readonly template: string | undefined;
  readonly keysOn: ((instance: object | undefined) => KeysOnInstance) | undefined;
}

/** A method with one of them. */
interface NotedMethod extends NotedKey {
  readonly decorator: NotedDecorator;
  readonly property: string | symbol;
  readonly parameters: number;
  readonly options: Readonly<Record<string, unknown>>;
}

/** The keys that a template can make on one instance. */
export interface KeysOnInstance {
  /** The template, with the values of its `<this.name>`. */
  readonly text: string;
  readonly characters: readonly KeyCharacter[];
  /** Whether all `<this.name>` have a value. */
  readonly isComplete: boolean;
}

/** One character of a key: a literal one, or one (or more, if `many`) of a value. Each value takes an `a`. */
export type KeyCharacter = string | { readonly takes: (character: string) => boolean; readonly many: boolean };

/** A noted method of an instance of the application. */
export interface OwnedMethod<Note extends Noted = NotedMethod> {
  /** The same for all owners. */
  readonly method: Note;
  /** `Class.method`, of the class of the instance, which may inherit the method. */
  readonly name: string;
  /** `undefined` for a class that gets instances as they are needed, such as one for each request. */
  readonly instance: object | undefined;
  readonly provider: Provider;
}

/** What decorators have noted of a method. */
interface Noted {
  readonly property: string | symbol;
}

/** What the decorators of one kind note on the prototypes of classes. */
export class MethodNotes<Note extends Noted> {
  /** @param key of the metadata; of the global registry if notes of another copy of the package count */
  constructor(private readonly key: symbol) {}

  /** Called at decoration, with the prototype of the class. */
  add(target: object, note: Note): void {
    Reflect.defineMetadata(this.key, [...this.declaredOn(target), note], target);
  }

  /** Those that run on an instance: an overridden method only if the class that overrides it calls it. */
  on(prototype: object): Note[] {
    const notes: Note[] = [];
    const below: object[] = [];
    for (let object: unknown = prototype; isObject(object); object = Object.getPrototypeOf(object)) {
      for (const note of this.declaredOn(object)) {
        if (!below.some((each) => overrides(each, note.property))) notes.push(note);
      }
      below.push(object);
    }
    return notes;
  }

  /** Those of all instances of the application, whether their class declares or inherits the method. */
  owned(discovery: DiscoveryService): OwnedMethod<Note>[] {
    const instances = new Set<object>();
    const owned: OwnedMethod<Note>[] = [];
    for (const provider of [...discovery.getProviders(), ...discovery.getControllers()]) {
      const prototype = prototypeOf(provider);
      if (!prototype || provider.isAlias) continue;
      const notes = this.on(prototype);
      for (const instance of instancesOf(provider)) {
        if (instance && instances.has(instance)) continue;
        if (instance) instances.add(instance);
        for (const method of notes) {
          const name = `${prototype.constructor.name}.${String(method.property)}`;
          owned.push({ method, instance, name, provider });
        }
      }
    }
    return owned;
  }

  private declaredOn(target: object): readonly Note[] {
    return (Reflect.getOwnMetadata(this.key, target) as Note[] | undefined) ?? [];
  }
}

const NOTED_METHODS = new MethodNotes<NotedMethod>(Symbol.for('nest-redis-lock:noted-methods'));

/** Called at decoration, with the prototype of the class. */
export function noteMethod(
  target: object,
  property: string | symbol,
  method: Omit<NotedMethod, 'property' | 'parameters'>,
): void {
  const types = Reflect.getMetadata('design:paramtypes', target, property) as unknown[] | undefined;
  const { length } = (target as Record<string | symbol, (...args: unknown[]) => unknown>)[property] ?? [];
  NOTED_METHODS.add(target, { ...method, property, parameters: types?.length ?? length });
}

/** The noted methods of all instances of the application. */
export function ownedMethods(discovery: DiscoveryService): OwnedMethod[] {
  return NOTED_METHODS.owned(discovery);
}

type Provider = ReturnType<DiscoveryService['getProviders']>[number];

/** `undefined` stands for those that are made as they are needed. */
function instancesOf(provider: Provider): (object | undefined)[] {
  if (!provider.isDependencyTreeStatic()) return [undefined];
  if (!provider.isTransient) return [provider.instance].filter(isObject);
  const instances = provider.getStaticTransientInstances().map((each): unknown => each?.instance);
  return instances.length > 0 ? instances.filter(isObject) : [undefined];
}

/** A key that both can be; `undefined` if there is none. */
export function keyOfBoth(one: readonly KeyCharacter[], other: readonly KeyCharacter[]): string | undefined {
  const seen = new Set<string>();
  const reached = [{ at: 0, otherAt: 0, key: '' }];
  for (const { at, otherAt, key } of reached) {
    if (at === one.length && otherAt === other.length) return key;
    for (const [next, character] of stepsFrom(one, at)) {
      for (const [otherNext, otherCharacter] of stepsFrom(other, otherAt)) {
        const common = commonCharacter(character, otherCharacter);
        const place = `${next}:${otherNext}`;
        if (common === undefined || seen.has(place)) continue;
        seen.add(place);
        reached.push({ at: next, otherAt: otherNext, key: key + common });
      }
    }
  }
  return undefined;
}

/** The places after the next character of a key, with what it can be. */
function stepsFrom(keys: readonly KeyCharacter[], at: number): [next: number, character: KeyCharacter][] {
  const steps: [number, KeyCharacter][] = [];
  const [before, after] = [keys[at - 1], keys[at]];
  if (typeof before === 'object' && before.many) steps.push([at, before]);
  if (after !== undefined) steps.push([at + 1, after]);
  return steps;
}

function commonCharacter(one: KeyCharacter, other: KeyCharacter): string | undefined {
  if (typeof one === 'object') {
    if (typeof other === 'object') return 'a';
    return one.takes(other) ? other : undefined;
  }
  return one === other || (typeof other === 'object' && other.takes(one)) ? one : undefined;
}

/** The prototypes of all providers and controllers of the application. */
export function prototypesOf(discovery: DiscoveryService): Set<object> {
  const providers = [...discovery.getProviders(), ...discovery.getControllers()];
  return new Set(providers.map(prototypeOf).filter(isObject));
}

function prototypeOf({ isNotMetatype, metatype, instance }: Provider): object | undefined {
  const found: unknown = isNotMetatype ? isObject(instance) && Object.getPrototypeOf(instance) : metatype?.prototype;
  return isObject(found) ? found : undefined;
}

/** Whether the method of a class hides that of the class which it extends: it does not call it. */
function overrides(prototype: object, property: string | symbol): boolean {
  const own = Object.getOwnPropertyDescriptor(prototype, property);
  return own !== undefined && (typeof property === 'symbol' || !callsSuper(own.value, property));
}

/** By its text, and by that of the methods that decorators have wrapped, which are its prototypes. */
function callsSuper(method: unknown, property: string): boolean {
  if (typeof method !== 'function') return false;
  return String(method).includes(`super.${property}`) || callsSuper(Object.getPrototypeOf(method), property);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
