import { Stream } from 'node:stream';
import { types } from 'node:util';
import { StreamableFile } from '@nestjs/common';
import { isObservable } from 'rxjs';
import type { Warnings } from '../../errors/limited-log.js';

/** How many objects of one value are looked at for classes and functions: the elements of a list are mostly alike. */
const MOST = 500;
/** How many places with functions are reported at most. */
const MOST_PLACES = 100;

type Class = abstract new (...args: never[]) => unknown;

/**
 * Checks values before they are stored. Refuses promises, streams and functions, which cannot be stored, and warns of
 * instances of classes, which come back as plain objects: without their methods, and without decorators such as
 * `@Exclude()`, which keeps a password from being sent.
 */
export class UnkeptClasses {
  private readonly reported = new WeakSet<Class>();
  private readonly reportedPlaces = new Set<string>();

  constructor(private readonly logger: Warnings) {}

  /**
   * Warns once for each class, unless there is a `revive`. @throws TypeError for a function, or a promise or stream
   * inside the value
   */
  look(key: string, value: unknown, revive: unknown): void {
    if (typeof value === 'function') throw new TypeError('it is a function, which cannot be stored; cache data');
    if (!isObject(value)) return;
    const found = new Look();
    found.lookAt(value);
    if (revive !== undefined) return;
    for (const path of found.functions) {
      const place = path.replaceAll(/\[\d+\]/g, '[]');
      if (this.reportedPlaces.has(place) || this.reportedPlaces.size >= MOST_PLACES) continue;
      this.reportedPlaces.add(place);
      this.logger.warn(
        `The value of "${key}" holds a function (${path}), and comes back without it: cache plain data, or read it with "revive" and a function that makes it again`,
      );
    }
    for (const [type, path] of found.classes) {
      if (this.reported.has(type)) continue;
      this.reported.add(type);
      const what = path === '' ? `is an instance of ${type.name}` : `holds an instance of ${type.name} (${path})`;
      const remedy =
        path === '' ? `"revive: instancesOf(${type.name})"` : '"revive" with a function that makes it again';
      this.logger.warn(
        `The value of "${key}" ${what}, and comes back as a plain object, without methods and without what @Exclude() hides: ` +
          `read it with ${remedy}, or cache plain data`,
      );
    }
  }
}

class Look {
  readonly classes = new Map<Class, string>();
  readonly functions: string[] = [];
  private left = MOST;
  /** Objects beyond the first ones, which are looked at for promises and streams only. */
  private readonly further: { readonly value: object; readonly path: string }[] = [];
  private readonly seen = new Set<object>();

  /** @throws TypeError for a promise or stream, wherever it is */
  lookAt(value: object): void {
    this.visit(value, '');
    for (let next = this.further.pop(); next; next = this.further.pop()) this.visit(next.value, next.path, true);
  }

  private visit(value: object, path: string, isFurther = false): void {
    if (this.seen.has(value)) return;
    if (this.left === 0 && !isFurther) return void this.further.push({ value, path });
    this.seen.add(value);
    if (!isFurther) this.left -= 1;
    if (Array.isArray(value)) return this.visitAll(value, path);
    const prototype: unknown = Object.getPrototypeOf(value);
    if (!isRoot(prototype)) {
      if (types.isPromise(value)) {
        throw new TypeError(`${path === '' ? 'it' : path} is a promise; await it`);
      }
      if (types.isMap(value)) this.visitAll(value.keys(), `${path}.keys()`);
      if (types.isMap(value) || types.isSet(value)) return this.visitAll(value.values(), path);
      if (isKept(value)) return;
      const kind = streamKindOf(value);
      if (kind !== undefined) {
        throw new TypeError(`${path === '' ? 'it' : path} is ${kind}, which can be read only once; cache its content`);
      }
      const { constructor } = value;
      if (!isFurther && !this.classes.has(constructor as Class)) this.classes.set(constructor as Class, path);
    }
    for (const name of Object.keys(value)) {
      const each = (value as Record<string, unknown>)[name];
      if (isObject(each)) this.visit(each, `${path}.${name}`);
      else if (typeof each === 'function' && !isFurther) this.functions.push(`${path}.${name}`);
    }
  }

  private visitAll(values: Iterable<unknown>, path: string): void {
    let index = 0;
    for (const value of values) {
      if (isObject(value)) this.visit(value, `${path}[${index}]`);
      else if (typeof value === 'function' && index < MOST) this.functions.push(`${path}[${index}]`);
      index += 1;
    }
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Whether it is the prototype of plain objects, in any realm. */
function isRoot(prototype: unknown): boolean {
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function isKept(value: object): boolean {
  return (
    types.isDate(value) ||
    types.isRegExp(value) ||
    types.isNativeError(value) ||
    types.isAnyArrayBuffer(value) ||
    ArrayBuffer.isView(value)
  );
}

/**
 * The kind of stream that a method has returned: something that can be read only once, or that has not begun.
 * `undefined` for a plain value.
 */
export function streamKindOf(result: unknown): string | undefined {
  if (typeof result !== 'object' || result === null) return undefined;
  if (isObservable(result)) return 'an Observable';
  if (result instanceof StreamableFile) return 'a StreamableFile';
  // Also of the packages undici and node-fetch, which have classes of their own.
  if (Object.prototype.toString.call(result) === RESPONSE) return 'a Response';
  if (Symbol.iterator in result && 'next' in result) return 'an iterator';
  return result instanceof Stream || Symbol.asyncIterator in result ? 'a stream' : undefined;
}

const RESPONSE = '[object Response]';
