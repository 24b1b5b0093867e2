import { createHash } from 'node:crypto';
import { types } from 'node:util';

/**
 * Makes a key part of a whole object, such as a DTO with a filter: 64 hexadecimal digits (SHA-256), the same for equal
 * data on every machine, whatever the order of its properties. For key functions (`(filter: Filter) => 'list:' +
 * hashKey(filter)`); templates write `<#0>` and `<#0.filter>` instead.
 *
 * Data is what JSON can express, and `Date`, `Map`, `Set`, `bigint` and bytes. `1`, `'1'` and `1n` differ, and so do a
 * `Date` and its text. An instance of a class counts as its own enumerable properties, or as the result of its
 * `toJSON`. A property that is `undefined` counts as absent; `null` does not. The class does not count: where two
 * classes with equal properties mean different things, put the kind into the key.
 *
 * @throws TypeError with the path, for `undefined`, functions, symbols, `NaN`, `Infinity`, cycles, and objects whose
 * content is not in their enumerable properties: private fields, symbols as names, properties that are not enumerable,
 * own properties of a list, Date, Map or Set
 */
export function hashKey(value: unknown): string {
  return createHash('sha256')
    .update(textOf(value, '', new Set()))
    .digest('hex');
}

/** The objects that contain a value. A value that is one of them forms a cycle. */
type Ancestors = Set<object>;

const DEEPEST = 500;

/**
 * The same text for values that are equal as data, and different texts for all others: JSON with sorted keys, and with
 * marks for what JSON cannot express. An instance of a class counts as its own enumerable properties, or as the result
 * of its `toJSON`; properties that are `undefined` count as absent.
 *
 * No well-kept library fits: they write a Map or a Set as `{}` and NaN as `null`, and leave out functions, so that
 * different values would share a key.
 *
 * @throws TypeError for a value that is not data, with its `path`
 */
function textOf(value: unknown, path: string, ancestors: Ancestors): string {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return JSON.stringify(value);
    case 'number':
      if (Number.isFinite(value)) return JSON.stringify(value);
      throw refused(path, String(value));
    case 'bigint':
      return `${value}n`;
    case 'object':
      if (value === null) return 'null';
      return textWithin(value, path, ancestors);
    default:
      throw refused(path, value === undefined ? 'undefined' : `a ${typeof value}`);
  }
}

function textWithin(value: object, path: string, ancestors: Ancestors): string {
  if (ancestors.has(value)) throw refused(path, 'a cycle');
  if (ancestors.size === DEEPEST) throw refused(path, `nested more than ${DEEPEST} levels deep`);
  ancestors.add(value);
  const text = textOfObject(value, path, ancestors);
  ancestors.delete(value);
  return text;
}

function textOfObject(value: object, path: string, ancestors: Ancestors): string {
  const hasOwnText = 'toJSON' in value && typeof value.toJSON === 'function';
  if (hasOwnText && !types.isDate(value) && !ArrayBuffer.isView(value)) {
    return textOf((value.toJSON as () => unknown)(), path, ancestors);
  }
  const isContainer = Array.isArray(value) || types.isDate(value) || types.isMap(value) || types.isSet(value);
  // Nobody waits for it, and its rejection must not end the process.
  if (types.isPromise(value)) value.catch(() => {});
  // For example a Promise, a RegExp, an Error or URLSearchParams: their content is not in their properties.
  if (!isContainer && !ArrayBuffer.isView(value) && kindOf(value) !== 'Object') {
    throw refused(path, `a ${kindOf(value)}`);
  }
  requireNothingHidden(value, path);
  if (Array.isArray(value)) {
    // Array.from turns a hole into undefined.
    return `[${Array.from(value, (each, index) => textOf(each, `${path}[${index}]`, ancestors)).join()}]`;
  }
  if (types.isDate(value)) {
    if (Number.isNaN(value.getTime())) throw refused(path, 'an invalid Date');
    return `Date(${value.toISOString()})`;
  }
  if (types.isMap(value)) {
    const entries = Array.from(value, ([key, each]) => {
      const name = textOf(key, `${path}.keys()`, ancestors);
      return `${name}:${textOf(each, `${path}.get(${name})`, ancestors)}`;
    });
    return `Map(${entries.toSorted().join()})`;
  }
  if (types.isSet(value)) {
    const members = Array.from(value, (each) => textOf(each, `${path}.values()`, ancestors));
    return `Set(${members.toSorted().join()})`;
  }
  if (ArrayBuffer.isView(value)) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return `${kindOf(value)}(${bytes.toString('hex')})`;
  }
  const properties = Object.entries(value).filter(([, each]) => each !== undefined);
  const texts = properties.map(
    ([name, each]) => `${JSON.stringify(name)}:${textOf(each, `${path}.${name}`, ancestors)}`,
  );
  return `{${texts.toSorted().join()}}`;
}

/**
 * Two values that differ in what the text does not show would share a key, so such values are refused.
 *
 * @throws TypeError
 */
function requireNothingHidden(value: object, path: string): void {
  const prototype = Object.getPrototypeOf(value) as object | null;
  const { privateFields, accessors, inheritedData } = prototype === null ? NOTHING_HIDDEN : classOf(prototype);
  const shown = () => `an instance of ${value.constructor.name}`;
  if (privateFields) throw refused(path, `${shown()}, which has private fields (give it a toJSON)`);
  // The names of a large buffer's elements would cost a string for each byte.
  if (ArrayBuffer.isView(value)) return;
  const names = Reflect.ownKeys(value);
  const isList = Array.isArray(value);
  const inText = Object.keys(value).length;
  if (isList || types.isDate(value) || types.isMap(value) || types.isSet(value)) {
    if (names.length > (isList ? value.length + 1 : 0)) {
      throw refused(path, `${isList ? 'a list' : `a ${kindOf(value)}`} with properties of its own beside its content`);
    }
    return;
  }
  if (names.length > inText) {
    const hidden = names.find(
      (name) => typeof name === 'symbol' || !Object.prototype.propertyIsEnumerable.call(value, name),
    );
    throw refused(path, `an object with a property that is not shown (${String(hidden)})`);
  }
  if (inheritedData !== undefined) {
    throw refused(path, `an object whose prototype has data (${inheritedData}), which is not shown`);
  }
  if (names.length === 0 && accessors) {
    throw refused(path, `${shown()}, which keeps its content elsewhere (give it a toJSON)`);
  }
}

/** What the instances of a class, and of the classes that it extends, may have beside their properties. */
interface ClassContent {
  readonly privateFields: boolean;
  readonly accessors: boolean;
  /** A property of an object, not of a class, from which it was made. */
  readonly inheritedData: string | undefined;
}

const NOTHING_HIDDEN: ClassContent = { privateFields: false, accessors: false, inheritedData: undefined };
const classes = new WeakMap<object, ClassContent>();

/** By the prototype of the instances. */
function classOf(prototype: object): ClassContent {
  const known = classes.get(prototype);
  if (known) return known;
  const next = Object.getPrototypeOf(prototype) as object | null;
  // That of plain objects, in any realm.
  if (next === null && Object.hasOwn(prototype, 'hasOwnProperty')) return NOTHING_HIDDEN;
  const inherited = next === null ? NOTHING_HIDDEN : classOf(next);
  if (!Object.hasOwn(prototype, 'constructor')) {
    const data = Object.entries(prototype).find(([, each]) => typeof each !== 'function');
    return { ...inherited, inheritedData: data?.[0] ?? inherited.inheritedData };
  }
  const members = new Map(Object.entries(Object.getOwnPropertyDescriptors(prototype)));
  const type: unknown = members.get('constructor')?.value;
  const content = {
    privateFields: inherited.privateFields || (typeof type === 'function' && declaresPrivateFields(type)),
    inheritedData: inherited.inheritedData,
    accessors: inherited.accessors || [...members.values()].some((member) => typeof member.get === 'function'),
  };
  classes.set(prototype, content);
  return content;
}

const TEXTS_AND_COMMENTS = /\/\*[\s\S]*?\*\/|\/\/.*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\[\s\S]|[^`\\])*`/g;
/** `#name`, unless it is used (`this.#name`), a method (`#name()`) or a member of the class itself (`static #name`). */
const PRIVATE_FIELD =
  /(?<![.\w$]|\bstatic\s+|\bstatic\s+accessor\s+)#[\p{ID_Start}$_][\p{ID_Continue}$]*(?!\s*\(|\s+in\b|[\p{ID_Continue}$])/u;

function declaresPrivateFields(type: object): boolean {
  const text = Function.prototype.toString.call(type);
  return text.includes('#') && PRIVATE_FIELD.test(text.replace(TEXTS_AND_COMMENTS, "''"));
}

/** `Object` for instances of classes, too. */
function kindOf(value: object): string {
  return Object.prototype.toString.call(value).slice('[object '.length, -1);
}

function refused(path: string, what: string): TypeError {
  const where = path === '' ? 'The value' : `What is at ${path}`;
  return new TypeError(
    `${where} is ${what}, which cannot be hashed; give data: what JSON has, Date, Map, Set, bigint or bytes`,
  );
}
