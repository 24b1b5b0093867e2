import { createHash } from 'node:crypto';
import { promisify, types } from 'node:util';
import { deflateRaw, inflateRawSync } from 'node:zlib';
import type { Type } from '@nestjs/common';
// The build puts it into the package: as a dependency it would install a native addon, which some installers refuse.
import { addExtension, Packr } from 'msgpackr/pack';
import { textOf } from '../../errors/limited-log.js';
import { type StoredData, HEADER } from '../../contracts/cache-store.js';
import type { UnkeptClasses } from './unkept-classes.js';

/** The tags of a value, with the version of each before the value was loaded. */
export type TagStamp = Readonly<Record<string, number>>;

/** Has no prototype, because a tag may have any name. */
export function emptyStamp(): Record<string, number> {
  return Object.create(null) as Record<string, number>;
}

/** What the envelope says about its value. */
interface EntryMark {
  /** When the value stops being fresh, in ms of the wall clock. */
  readonly expiresAt: number;
  /** Whether the value is kept for longer than it is fresh. */
  readonly keptStale: boolean;
  /** How long the load took, in ms; only where `refreshAhead` needs it. */
  readonly loadTime: number | undefined;
  /** Its own `ttl` in ms, where `refreshAhead` needs it and it is not that of the options. */
  readonly ttl: number | undefined;
  readonly tags: TagStamp | undefined;
}

export interface Entry extends EntryMark {
  readonly kind: number;
  /** The output of the serializer, compressed or not. */
  readonly payload: Buffer;
}

/** What an envelope has as JSON: load time, tags, and its own `ttl`. Earlier versions pass over names they lack. */
interface Further {
  readonly t?: number | undefined;
  readonly g?: TagStamp | undefined;
  readonly l?: number | undefined;
}

/** The output of the serializer, or the kind of an absent value. */
export interface Serialized {
  readonly absent?: number;
  readonly payload?: string | Buffer;
}

const NULL = 1;
const UNDEFINED = 2;
const COMPRESSED = 4;
const MORE = 16;
const NEW_LINE = 10;
/** The first character of the mark of a serializer. */
const SERIALIZED_BY = '/';
const SLASH = 47;
const DIGEST_LENGTH = 8;
const MINUS = 45;
const ZERO = 48;
const NINE = 57;

const compress = promisify(deflateRaw);

/** Which values are compressed, by their size in bytes. */
export interface Compression {
  readonly threshold: number;
  /** Larger values are not compressed, and no value is inflated beyond this size. */
  readonly maxBytes: number;
}

export const NO_COMPRESSION: Compression = { threshold: Infinity, maxBytes: 0 };

/**
 * Seals values in envelopes and opens them. An envelope is a version byte, a byte of flags, the end of freshness (base
 * 36), the mark of the serializer unless it is a built-in one, load time and tags as JSON if there are any, a line
 * feed, and the payload. A whole number set by hand is stored as its digits instead, so that Redis can count it.
 */
export class Envelopes {
  /** The mark of the serializer, after the time; empty for a built-in serializer. */
  private readonly serializedBy: string;
  private readonly serializedByBytes: Buffer;
  /** Whether a value may share bytes with the data that the serializer read. */
  private readonly sharesBytes: boolean;

  constructor(
    private readonly serializer: CacheSerializer,
    private readonly compression: Compression,
    private readonly greatest: number,
    private readonly unkeptClasses: UnkeptClasses,
  ) {
    this.sharesBytes = !BUILT_IN_SERIALIZERS.has(serializer);
    this.serializedBy = this.sharesBytes ? SERIALIZED_BY + digestOf(serializer) : '';
    this.serializedByBytes = Buffer.from(this.serializedBy);
  }

  /**
   * Serializes the value of the key as it is now, to seal it later, and warns of what would not come back of it.
   *
   * @throws what `UnkeptClasses` and the serializer throw
   */
  serialize(key: string, value: unknown, revive: unknown): Serialized {
    if (value === null) return { absent: NULL };
    if (value === undefined) return { absent: UNDEFINED };
    // All of it comes back.
    if (!this.sharesBytes && isJson(value, 0)) return { payload: JSON.stringify(value) };
    this.unkeptClasses.look(key, value, revive);
    const payload: unknown = this.serializer.serialize(value);
    if (typeof payload === 'string') return { payload };
    if (types.isUint8Array(payload)) {
      return { payload: Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength) };
    }
    throw new TypeError(`"cache.serializer" returned ${textOf(payload)}; let it return text or bytes`);
  }

  seal({ absent = 0, payload }: Serialized, mark: EntryMark): StoredData | Promise<StoredData> {
    const kind = absent | (mark.keptStale ? HEADER.keptStale : 0);
    if (payload === undefined) return this.head(kind, mark);
    const { threshold, maxBytes } = this.compression;
    if (threshold !== Infinity) {
      const size = Buffer.byteLength(payload);
      if (size >= threshold && size <= maxBytes) return this.compressed(payload, this.head(kind | COMPRESSED, mark));
    }
    return this.bounded(this.head(kind, mark), payload);
  }

  private async compressed(payload: string | Buffer, first: string): Promise<StoredData> {
    return this.bounded(first, await compress(payload));
  }

  /** Refuses a value so large that its command would delay all others beyond `commandTimeout`. */
  private bounded(first: string, payload: string | Buffer): StoredData {
    const data = typeof payload === 'string' ? first + payload : Buffer.concat([Buffer.from(first), payload]);
    // A character takes at most 3 bytes for each unit of its length.
    if (data.length * 3 <= this.greatest || Buffer.byteLength(data) <= this.greatest) return data;
    const size = `${Buffer.byteLength(data)} bytes, more than cache.maxValueBytes (${this.greatest})`;
    throw new RangeError(
      `it has ${size}; store a smaller value, compress it, or raise cache.maxValueBytes and cache.commandTimeout`,
    );
  }

  /** `undefined` for data without an envelope, of another version, or of another serializer. */
  open(data: Buffer): Entry | undefined {
    if (data[0] !== HEADER.version) return undefined;
    const kind = (data[1] ?? 0) - HEADER.flags;
    let expiresAt = 0;
    let at = 2;
    for (; at < data.length; at++) {
      const code = data[at] as number;
      if (code >= ZERO && code <= NINE) expiresAt = expiresAt * 36 + code - ZERO;
      else if (code >= 97 && code <= 122) expiresAt = expiresAt * 36 + code - 87;
      else break;
    }
    if ((kind & (NULL | UNDEFINED)) === 0) {
      const { length } = this.serializedByBytes;
      if (length === 0 ? data[at] === SLASH : data.compare(this.serializedByBytes, 0, length, at, at + length) !== 0) {
        return undefined;
      }
      at += length;
    }
    let more: Further | undefined;
    if ((kind & MORE) !== 0) {
      const end = data.indexOf(NEW_LINE, at);
      more = JSON.parse(data.toString('utf8', at, end)) as Further;
      at = end;
    }
    const keptStale = (kind & HEADER.keptStale) !== 0;
    const payload = data.subarray(at + 1);
    return { kind, expiresAt, keptStale, loadTime: more?.t, ttl: more?.l, tags: more?.g, payload };
  }

  /** The first bytes of the stored value: all before the payload. */
  headOf(sealed: Entry): string {
    return this.head(sealed.kind & ~MORE, sealed);
  }

  /** @throws what the serializer throws, and for a compressed value where compression is off, or above `maxBytes` */
  valueOf({ kind, payload }: Entry): unknown {
    if ((kind & (NULL | UNDEFINED | COMPRESSED)) === 0) return this.serializer.deserialize(payload);
    if (kind & NULL) return null;
    if (kind & UNDEFINED) return undefined;
    const { threshold, maxBytes } = this.compression;
    if (threshold === Infinity)
      throw new Error('it is compressed, and option "cache.compression" is off; turn it on to read the value');
    return this.serializer.deserialize(inflateRawSync(payload, { maxOutputLength: maxBytes }));
  }

  /** As `valueOf`, but shares no bytes with the entry, from which further values are made. */
  copyOf(kept: Entry): unknown {
    return this.valueOf(this.sharesBytes ? { ...kept, payload: Buffer.from(kept.payload) } : kept);
  }

  private head(kind: number, { expiresAt, loadTime, ttl, tags }: EntryMark): string {
    const more = loadTime !== undefined || ttl !== undefined || tags !== undefined;
    const flags = String.fromCharCode(HEADER.version, HEADER.flags + (more ? kind | MORE : kind));
    const by = (kind & (NULL | UNDEFINED)) === 0 ? this.serializedBy : '';
    const rest = more ? JSON.stringify({ t: loadTime, g: tags, l: ttl } satisfies Further) : '';
    return `${flags}${timeText(Math.max(0, Math.round(expiresAt)))}${by}${rest}\n`;
  }
}

/** Two digits of base 36. */
const PAIRS = Array.from({ length: 1_296 }, (_, pair) => pair.toString(36).padStart(2, '0'));
/** How many ms six digits of base 36 count: 25 days. */
const SIX_DIGITS = 36 ** 6;

/** `time.toString(36)`, which V8 divides digit by digit as a floating-point number, for each value that is stored. */
function timeText(time: number): string {
  const high = Math.floor(time / SIX_DIGITS);
  if (high < 36 || high >= PAIRS.length) return time.toString(36);
  const low = time - high * SIX_DIGITS;
  const first = Math.floor(low / 1_679_616);
  const rest = low - first * 1_679_616;
  const second = Math.floor(rest / 1_296);
  return `${PAIRS[high]}${PAIRS[first]}${PAIRS[second]}${PAIRS[rest - second * 1_296]}`;
}

/**
 * A digest of the name, or of the text of the functions: of fixed length, and the same in every process of one build.
 */
function digestOf(serializer: CacheSerializer): string {
  const { name } = serializer;
  const texts = ['serialize', 'deserialize'].map((method) => String(Reflect.get(serializer, method)));
  const identity = name === undefined ? texts.join('\n') : `name:${name}`;
  return createHash('sha1').update(identity).digest('base64url').slice(0, DIGEST_LENGTH);
}

/** Whether the value was expired softly, and so is stale before its time. */
export function isExpired({ kind }: Entry): boolean {
  return (kind & HEADER.expired) !== 0;
}

/** Whether the value is absent: null or undefined. */
export function isNothing({ kind }: Entry): boolean {
  return (kind & (NULL | UNDEFINED)) !== 0;
}

/** Whether `incr` can count the value. */
export function countable(value: unknown): value is number {
  return Number.isSafeInteger(value) && !Object.is(value, -0);
}

/** The number that is stored in place of an envelope; `undefined` for other data. */
export function countedNumber(data: Buffer): number | undefined {
  const first = data[0] ?? 0;
  if (first !== MINUS && !(first >= ZERO && first <= NINE)) return undefined;
  const digits = data.toString('latin1');
  return /^-?\d+$/.test(digits) ? Number(digits) : undefined;
}

/** Time, the mark of a serializer, and the rest as JSON. */
const HEAD = /^([0-9a-z]+)(?:\/[\w-]{8})?(.*)\n$/s;

/**
 * An envelope without its payload, from the first line of the stored data, whatever serializer made the payload.
 * `undefined` for data without an envelope, or of another version.
 */
export function openHead(head: Buffer): Entry | undefined {
  const [, time, json = ''] = HEAD.exec(head.toString('utf8', 2)) ?? [];
  if (head[0] !== HEADER.version || time === undefined) return undefined;
  const kind = (head[1] ?? 0) - HEADER.flags;
  const more = kind & MORE ? furtherIn(json) : {};
  if (!more) return undefined;
  const keptStale = (kind & HEADER.keptStale) !== 0;
  const [expiresAt, payload] = [parseInt(time, 36), Buffer.alloc(0)];
  return { kind, expiresAt, keptStale, loadTime: more.t, ttl: more.l, tags: more.g, payload };
}

function furtherIn(json: string): Further | undefined {
  try {
    return JSON.parse(json) as Further;
  } catch {
    return undefined;
  }
}

/** Turns values into bytes and back. */
export interface CacheSerializer {
  /**
   * Stored with every value. A value that a serializer with another name stored counts as absent, so that two versions
   * of an application can run at once: change the name when `deserialize` can no longer read older values.
   * @default a digest of the text of both functions
   */
  readonly name?: string;
  /** Return text where possible: clients send it faster than a buffer. */
  serialize(value: unknown): string | Buffer;
  /** @throws for data that `serialize` did not make: the value then counts as absent */
  deserialize(data: Buffer): unknown;
}

/** The first byte of packed data: neither UTF-8 text nor MessagePack begins with it. */
const PACKED = 0xc1;

/** What msgpackr would write as an `Error`, whose constructor takes the message first. */
addExtension({
  Class: AggregateError,
  // A letter, as the types of msgpackr itself, which has no "A".
  type: 0x41,
  write: ({ errors, message, cause }: AggregateError) =>
    cause === undefined ? [errors, message] : [errors, message, { cause }],
  read: ([errors, message, options]: [errors: unknown[], message: string, options?: ErrorOptions]) =>
    new AggregateError(errors, message, options),
});

/**
 * Keeps `Date`, `Map`, `Set`, `bigint`, `undefined`, `NaN`, `Buffer`, typed arrays, regular expressions, errors and
 * cycles. Stores a value that JSON keeps unchanged as JSON, which is fast to read and readable for other programs, and
 * any other value as MessagePack.
 */
export function typedSerializer(): CacheSerializer {
  // A value that it reads shares no bytes with the data.
  const packr = new Packr({ structuredClone: true, useBigIntExtension: true, copyBuffers: true });
  const serializer: CacheSerializer = {
    name: 'typed',
    serialize(value) {
      if (isJson(value, 0)) return JSON.stringify(value);
      return Buffer.concat([Buffer.of(PACKED), packr.pack(value)]);
    },
    deserialize(data) {
      return data[0] === PACKED ? packr.unpack(data.subarray(1)) : JSON.parse(data.toString());
    },
  };
  BUILT_IN_SERIALIZERS.add(serializer);
  return serializer;
}

/** The serializers made by `typedSerializer()`: their values share no bytes with the data they were read from. */
const BUILT_IN_SERIALIZERS = new WeakSet<CacheSerializer>();

/**
 * For `revive`: turns the stored object, or each element of a stored list, into an instance of the class without
 * calling the constructor. Nested objects stay plain; to revive them, give a function such as `(stored) =>
 * plainToInstance(Product, stored)`.
 */
export function instancesOf<T extends object>(type: Type<T>): (stored: unknown) => unknown {
  return function revive(stored: unknown): unknown {
    if (Array.isArray(stored)) return stored.map(revive);
    if (typeof stored !== 'object' || stored === null) return stored;
    // Defines the properties, because an assignment would run setters of the class, and that of "__proto__" changes the
    // class.
    const { ['__proto__']: _, ...properties } = Object.getOwnPropertyDescriptors(stored);
    return Object.create(type.prototype as object, properties) as object;
  };
}

/** A value that is nested deeper may have a cycle; the packer handles these. */
const DEEPEST = 32;

/** Whether `JSON.parse(JSON.stringify(value))` is the same. */
function isJson(value: unknown, depth: number): boolean {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return true;
    case 'number':
      return Number.isFinite(value) && !Object.is(value, -0);
    case 'object':
      if (value === null) return true;
      if (depth > DEEPEST) return false;
      return Array.isArray(value) ? isJsonList(value, depth) : isJsonObject(value, depth);
    default:
      return false;
  }
}

function isJsonList(list: readonly unknown[], depth: number): boolean {
  for (const element of list) if (!isJson(element, depth + 1)) return false;
  return true;
}

function isJsonObject(object: object, depth: number): boolean {
  const prototype: unknown = Object.getPrototypeOf(object);
  if ((prototype !== Object.prototype && prototype !== null) || 'toJSON' in object) return false;
  for (const name in object) if (!isJson((object as Record<string, unknown>)[name], depth + 1)) return false;
  return true;
}
