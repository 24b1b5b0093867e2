import { textOf } from '../errors/limited-log.js';
import { hashKey } from '../keys/hash-key.js';
import { keyPartEncoder, whyNotAKeyPart, whyNotText } from '../keys/key-part.js';
import { unawaited } from '../options/option-checks.js';
import type { KeyCharacter, KeysOnInstance, NotedKey } from '../wiring/noted-methods.js';
import { methodName, type MethodCall } from './method-wrapping.js';

/** A key template, several, or a function of the method's arguments. */
export type AnyKey = string | readonly string[] | ((...args: never[]) => string | readonly string[]);

/** The error class for a template or value that is refused. */
type KeyErrorClass = new (message: string) => Error;

/** What the keys of a call are made from. */
type Source = Pick<MethodCall, 'instance' | 'args'>;

/**
 * Returns a function that makes the keys of a call from its arguments and its instance, which is `this` of a key
 * function. @throws KeyError for an unreadable or missing template
 */
export function keyFunction(key: AnyKey, KeyError: KeyErrorClass): (call: Source) => string | readonly string[] {
  if (typeof key === 'function') return ({ instance, args }) => unawaited(key.call(instance, ...(args as never[])));
  if (Array.isArray(key) && key.length === 0) {
    throw new KeyError('The list of key templates is empty; give one or more');
  }
  const templates = (Array.isArray(key) ? (key as readonly string[]) : [key as string]).map((template) =>
    compileKeyTemplate(template, KeyError),
  );
  const [only, ...others] = templates;
  if (only && others.length === 0) return only;
  return (call) => templates.flatMap((names) => names(call));
}

/** The same for decorators that take one key. @throws KeyError also for a template that makes several keys */
export function singleKeyFunction(
  key: string | ((...args: never[]) => string),
  KeyError: KeyErrorClass,
): (call: Source) => string {
  if (typeof key !== 'function') return compileSingleKeyTemplate(key, KeyError);
  return ({ instance, args }) => {
    const made: unknown = unawaited(key.call(instance, ...(args as never[])));
    if (typeof made === 'string' && made !== '') return made;
    throw new KeyError(`The key function returned ${made === '' ? 'an empty string' : textOf(made)}; return one key`);
  };
}

/** Names the keys of a decorated method in events: its templates, or `Class.method` if it has a function. */
export function templateNamed(key: AnyKey, target: object, method: string | symbol): string {
  if (typeof key === 'function') return methodName(target, method);
  return typeof key === 'string' ? key : key.join(',');
}

/**
 * Reads a template such as `order:<0>`, `sku:<0.items.*.sku>` or `<this.shop>:<0>` once, and returns a function that
 * builds the names from the arguments and the instance of a call.
 *
 * The values are percent-encoded at `%`, `:` and braces, and at any other character that separates two of them
 * (`<0>-<1>`), so that no value can forge another name.
 *
 * @throws KeyError when the template cannot be read, and for a value that would name the wrong thing
 */
export function compileKeyTemplate(template: string, KeyError: KeyErrorClass): (call: Source) => readonly string[] {
  return compile(template, parse(template, KeyError), KeyError);
}

/** The same for a template of one key. @throws KeyError also if the template walks a list */
export function compileSingleKeyTemplate(template: string, KeyError: KeyErrorClass): (call: Source) => string {
  const parts = parse(template, KeyError);
  if (parts.some(walksList)) {
    throw new KeyError(
      `Key template "${template}" yields a key for each element, where one key is needed; leave the * out`,
    );
  }
  const steps = stepsOf(parts);
  return (call) => {
    let name = '';
    for (const step of steps) {
      name += typeof step === 'string' ? step : valuesOf(template, step.part, call, KeyError, step.encode)[0];
    }
    return name;
  };
}

/**
 * Checks a name in which nothing stands for an argument.
 *
 * @throws KeyError for what looks as if it did
 */
export function requireNoPlaceholder(name: string, byHand: string, KeyError: KeyErrorClass): void {
  const found = foreignPlaceholder(name) ?? /<[^<>]*>?|>/.exec(name)?.[0];
  if (found === undefined) return;
  throw new KeyError(
    `The name "${name}" has "${found}", which nothing replaces: all calls would share one name. Leave it out; for a name ` +
      `of the arguments, call ${byHand}`,
  );
}

/** What the checks at start-up look at in the key of a method. */
export function notedKey(key: string | ((...args: never[]) => string), KeyError: KeyErrorClass): NotedKey {
  if (typeof key === 'function') return { template: undefined, keysOn: undefined };
  return { template: key, keysOn: keysOnInstance(key, KeyError) };
}

/** The keys that a template of one key can make on an instance. */
function keysOnInstance(template: string, KeyError: KeyErrorClass): (instance: object | undefined) => KeysOnInstance {
  const parts = parse(template, KeyError);
  return (instance) => {
    const found = parts.map((part, index) => {
      if (typeof part === 'string') return { text: part, characters: Array.from(part) };
      const separators = softSeparators(parts, index);
      const encode = keyPartEncoder(separators);
      const text = part.root === 'this' && instance ? valueOn(instance, template, part, KeyError, encode) : undefined;
      if (text === undefined) return { text: part.text, characters: charactersOf(part, separators), part };
      return { text, characters: Array.from(text) };
    });
    return {
      text: found.map(({ text }) => text).join(''),
      characters: found.flatMap(({ characters }): readonly KeyCharacter[] => characters),
      isComplete: found.every(({ part }) => part?.root !== 'this'),
    };
  };
}

/** `undefined` where the instance has none yet: it may get it later. */
function valueOn(
  instance: object,
  template: string,
  part: Placeholder,
  KeyError: KeyErrorClass,
  encode: (value: string) => string,
): string | undefined {
  try {
    const [value] = valuesOf(template, part, { instance, args: [] }, KeyError, encode);
    return value === ABSENT ? undefined : value;
  } catch {
    return undefined;
  }
}

/** The characters that a value can have in a key, which has it encoded. */
function charactersOf({ hashed, optional }: Placeholder, separators: readonly string[]): KeyCharacter[] {
  if (hashed && optional) return [{ takes: (character) => character === ABSENT || isHexDigit(character), many: true }];
  if (hashed) return Array.from({ length: HASH_LENGTH }, () => ({ takes: isHexDigit, many: false }));
  const never = new Set([':', '{', '}', ...separators]);
  return [{ takes: (character) => !never.has(character), many: true }];
}

const HASH_LENGTH = 64;

function isHexDigit(character: string): boolean {
  return /^[0-9a-f]$/.test(character);
}

interface Placeholder {
  /** `<#0>`: the value is hashed, so it may be an object. */
  readonly hashed: boolean;
  /** `<0?>`: the value may be absent. */
  readonly optional: boolean;
  /** The number of an argument, or the instance. */
  readonly root: number | 'this';
  readonly path: readonly string[];
  readonly text: string;
}

type Part = string | Placeholder;

/** Stands for an absent value. No value is encoded so. */
const ABSENT = '%';
/** Walks a list: one key for each of its elements. */
const EACH = '*';
/** `%` does not separate values, because every escape contains it. */
const SEPARATOR = /[^\p{L}\p{N}%]/u;

function compile(
  template: string,
  parts: readonly Part[],
  KeyError: KeyErrorClass,
): (call: Source) => readonly string[] {
  const steps = stepsOf(parts);
  return (call) => {
    let names = [''];
    for (const step of steps) {
      const values = typeof step === 'string' ? [step] : valuesOf(template, step.part, call, KeyError, step.encode);
      if (values.length > 1) names = names.flatMap((name) => values.map((value) => name + value));
      else for (let index = 0; index < names.length; index++) names[index] += values[0] as string;
    }
    return names;
  };
}

/** What is text, and what is encoded how. */
function stepsOf(parts: readonly Part[]) {
  return parts.map((part, index) =>
    typeof part === 'string' ? part : { part, encode: keyPartEncoder(softSeparators(parts, index)) },
  );
}

/**
 * The separators between the value at `index` and its neighbours, other than those that are encoded in every value:
 * from each text between here and the next `:` or brace on either side, the first separating character.
 */
function softSeparators(parts: readonly Part[], index: number): string[] {
  const separators: string[] = [];
  for (const direction of [-1, 1]) {
    for (let at = index + direction; at > 0 && at < parts.length - 1; at += direction) {
      const part = parts[at];
      if (typeof part !== 'string') continue;
      if (/[:{}]/.test(part)) break;
      separators.push(...(part.match(SEPARATOR) ?? []));
    }
  }
  return separators;
}

function parse(template: string, KeyError: KeyErrorClass): Part[] {
  if (typeof template !== 'string' || template === '') {
    throw new KeyError(`Key template is ${template === '' ? 'empty' : textOf(template)}; give a name or a template`);
  }
  const foreign = foreignPlaceholder(template);
  if (foreign !== undefined) throw constant(template, foreign, KeyError);
  const parts: Part[] = template
    .split(/(<[^<>]*>)/)
    .filter((text) => text !== '')
    .map((text) => (text.startsWith('<') && text.endsWith('>') ? placeholder(template, text, KeyError) : text));
  for (const [index, part] of parts.entries()) {
    if (typeof part === 'string') requireLiteral(template, part, index > 0 && index < parts.length - 1, KeyError);
    else if (index > 0 && typeof parts[index - 1] !== 'string') throw notSeparated(template, KeyError);
  }
  if (parts.filter(walksList).length > 1) {
    throw new KeyError(`Key template "${template}" walks two lists; give a function that returns the names`);
  }
  return parts;
}

function walksList(part: Part): boolean {
  return typeof part !== 'string' && part.path.includes(EACH);
}

function placeholder(template: string, text: string, KeyError: KeyErrorClass): Placeholder {
  const hashed = text.startsWith('<#');
  const optional = text.endsWith('?>');
  const [first = '', ...path] = text.slice(hashed ? 2 : 1, optional ? -2 : -1).split('.');
  const ofInstance = first === 'this' && path.length > 0;
  if ((!/^\d+$/.test(first) && !ofInstance) || path.includes('')) {
    throw new KeyError(
      `Key template "${template}": "${text}" is not a placeholder; write the argument's number and a path, as in <0> or ` +
        '<0.customer.id>, or a property of the instance, as in <this.shop>',
    );
  }
  return { hashed, optional, root: ofInstance ? 'this' : Number(first), path, text };
}

function requireLiteral(template: string, text: string, between: boolean, KeyError: KeyErrorClass): void {
  if (/[<>]/.test(text)) {
    throw new KeyError(`Key template "${template}" has a single "<" or ">"; give a function for such a name`);
  }
  const why = whyNotText(text);
  if (why) throw new KeyError(`Key template "${template}" has ${why}; leave it out`);
  if (between && !SEPARATOR.test(text)) throw notSeparated(template, KeyError);
}

function constant(template: string, foreign: string, KeyError: KeyErrorClass): Error {
  const [, number] = /^\W+(\d+)\W*$/.exec(foreign) ?? [];
  const right = number === undefined ? '<0> for the first argument, <0.id> for its property "id"' : `<${number}>`;
  return new KeyError(
    `Key template "${template}": "${foreign}" would be text, and all calls would share one key; write ${right}; for ` +
      'such text, give a function of the arguments',
  );
}

function notSeparated(template: string, KeyError: KeyErrorClass): Error {
  return new KeyError(
    `Key template "${template}" runs two placeholders together; put a separator such as ":" between them`,
  );
}

function valuesOf(
  template: string,
  { hashed, optional, root, path, text }: Placeholder,
  { instance, args }: Source,
  KeyError: KeyErrorClass,
  encode: (value: string) => string,
): string[] {
  let found: unknown[] = [root === 'this' ? instance : args[root]];
  for (const step of path) {
    found = found.flatMap((value) => (step === EACH ? elements(value) : [property(value, step)]));
  }
  if (found.length === 0) throw refused('an empty list');
  const values: string[] = [];
  for (const value of found) {
    const why = hashed || (optional && isAbsent(value)) ? undefined : whyNotAKeyPart(value);
    if (why) throw refused(why);
    if (optional && isAbsent(value)) values.push(ABSENT);
    else values.push(hashed ? hashOf(value) : encode(String(value)));
  }
  return values;

  function elements(value: unknown): readonly unknown[] {
    if (Array.isArray(value)) return value;
    if (optional && isAbsent(value)) return [undefined];
    throw refused(`not a list at "${EACH}"`);
  }

  function hashOf(value: unknown): string {
    try {
      return hashKey(value);
    } catch (error) {
      throw error instanceof TypeError ? new KeyError(`Key template "${template}": ${text}: ${error.message}`) : error;
    }
  }

  function refused(why: string): Error {
    return new KeyError(
      `Key template "${template}": ${text} is ${why}; it must be a string, number, bigint or boolean` +
        (why === 'an object' ? ` (${text.replace('<', '<#')} makes a key part of an object)` : '') +
        (why === 'undefined' || why === 'null'
          ? ` (${text.replace('>', '?>')} makes a key part of an absent value)`
          : ''),
    );
  }
}

function isAbsent(value: unknown): value is null | undefined {
  return value === null || value === undefined;
}

function property(value: unknown, name: string): unknown {
  if (isAbsent(value)) return undefined;
  return (value as Record<string, unknown>)[name];
}

/**
 * How other libraries and languages write an argument. In a template of this library it would be text, and all calls
 * would share one key. A `#` or `$` after a letter or digit (`c#`) is text, and so is a `{tag}` at the beginning that
 * more text follows: the hash tag of a Redis Cluster.
 */
const FOREIGN: readonly RegExp[] = [
  /\$\{[^}]*\}?/gu,
  /(?<![\p{L}\p{N}])[#$][\p{L}_{][\p{L}\p{N}_.{}[\]]*/gu,
  /(?<![\p{L}\p{N}])\$\d+/gu,
  /(?<=.)\{[^}]*\}?/gsu,
  /^\{\d*\}/gu,
  /^\{[^}]*\}?$/gu,
];

/** The placeholders of this library; `<` occurs in no other text of a template. */
const OURS = '<>';

/** The text of a template that another library would take for an argument; `undefined` if there is none. */
function foreignPlaceholder(template: string): string | undefined {
  const text = template.replace(/<[^<>]*>/g, OURS);
  const found = FOREIGN.flatMap((pattern) => text.match(pattern) ?? []);
  return found.find((each) => !each.includes(OURS));
}
