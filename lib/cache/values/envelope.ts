import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { deflateRaw, inflateRawSync } from 'node:zlib';
import type { StoredData } from '../../contracts/cache-store.js';
import { HEADER } from '../../contracts/value-header.js';
import type { CacheSerializer } from './cache-serializer.js';
import { OWN_SERIALIZERS } from './own-serializers.js';

/** The tags of a value, and the version that each had before it was loaded. */
export type TagStamp = Readonly<Record<string, number>>;

/** Without a prototype, as a tag may have any name. */
export function emptyStamp(): Record<string, number> {
  return Object.create(null) as Record<string, number>;
}

/** What is known of a value beside itself. */
export interface EntryMark {
  /** When it stops being fresh, in ms of the wall clock. */
  readonly expiresAt: number;
  /** It is kept for longer than it is fresh. */
  readonly keptStale: boolean;
  /** How long its load took, in ms; only where `refreshAhead` asks for it. */
  readonly loadTime: number | undefined;
  readonly tags: TagStamp | undefined;
}

export interface Entry extends EntryMark {
  readonly kind: number;
  /** As the serializer made it, maybe compressed. */
  readonly payload: Buffer;
}

/** A value as the serializer made it, or which kind of nothing it is. */
export interface Serialized {
  readonly absent?: number;
  readonly payload?: string | Buffer;
}

const NULL = 1;
const UNDEFINED = 2;
const COMPRESSED = 4;
const MORE = 16;
const NEW_LINE = 10;
/** What the mark of a serializer begins with. */
const SERIALIZED_BY = '/';
const SLASH = 47;
const DIGEST_LENGTH = 8;
const MINUS = 45;
const ZERO = 48;
const NINE = 57;

const compress = promisify(deflateRaw);

/** Which values are compressed, in bytes. */
export interface Compression {
  readonly threshold: number;
  /** Larger ones are not, nor is anything inflated beyond that. */
  readonly maxBytes: number;
}

export const NO_COMPRESSION: Compression = { threshold: Infinity, maxBytes: 0 };

/**
 * Values with what is known of them, as they are stored: a version byte, a byte of flags, when it expires (base 36),
 * the mark of the serializer unless it is ours, what else is known as JSON if there is any, a line feed, and the
 * payload. A whole number that was set by hand is stored as its digits, so that it can be counted up.
 */
export class Envelopes {
  /** Between the time and what follows it; empty for the serializer of ours. */
  private readonly serializedBy: string;
  private readonly serializedByBytes: Buffer;
  /** What the serializer makes may be a part of what it was given. */
  private readonly sharesBytes: boolean;

  constructor(
    private readonly serializer: CacheSerializer,
    private readonly compression: Compression,
    private readonly greatest: number,
  ) {
    this.sharesBytes = !OWN_SERIALIZERS.has(serializer);
    this.serializedBy = this.sharesBytes ? SERIALIZED_BY + digestOf(serializer) : '';
    this.serializedByBytes = Buffer.from(this.serializedBy);
  }

  seal(value: unknown, mark: EntryMark): StoredData | Promise<StoredData> {
    return this.sealSerialized(this.serialize(value), mark);
  }

  /** As the value is now, to be sealed later; the caller may change it meanwhile. @throws what the serializer throws */
  serialize(value: unknown): Serialized {
    if (value === null) return { absent: NULL };
    return value === undefined ? { absent: UNDEFINED } : { payload: this.serializer.serialize(value) };
  }

  sealSerialized({ absent = 0, payload }: Serialized, mark: EntryMark): StoredData | Promise<StoredData> {
    const kind = absent | (mark.keptStale ? HEADER.keptStale : 0);
    if (payload === undefined) return this.head(kind, mark);
    const { threshold, maxBytes } = this.compression;
    if (threshold !== Infinity) {
      const size = Buffer.byteLength(payload);
      if (size >= threshold && size <= maxBytes) return this.compressed(payload, this.head(kind | COMPRESSED, mark));
    }
    return this.bounded(joined(this.head(kind, mark), payload));
  }

  private async compressed(payload: string | Buffer, first: string): Promise<StoredData> {
    return this.bounded(joined(first, await compress(payload)));
  }

  /** One command with more would keep all others waiting for longer than they may take. */
  private bounded(data: StoredData): StoredData {
    // A character takes at most 3 bytes for each unit of its length.
    if (data.length * 3 <= this.greatest || Buffer.byteLength(data) <= this.greatest) return data;
    const size = `${Buffer.byteLength(data)} bytes, more than cache.maxValueBytes (${this.greatest})`;
    throw new RangeError(`it has ${size}; store less of it, compress it, or raise that and cache.commandTimeout`);
  }

  /** `undefined` for what is not ours, of another version, or made by another serializer. */
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
    if ((kind & MORE) === 0) {
      return entry(kind, expiresAt, undefined, data.subarray(at + 1));
    }
    const end = data.indexOf(NEW_LINE, at);
    const more = JSON.parse(data.toString('utf8', at, end)) as { t?: number; g?: TagStamp };
    return entry(kind, expiresAt, more, data.subarray(end + 1));
  }

  /** What the stored value begins with. */
  headOf(sealed: Entry): string {
    return this.head(sealed.kind & ~MORE, sealed);
  }

  /** @throws what the serializer throws, and for what is compressed where compression is off, or too large */
  valueOf({ kind, payload }: Entry): unknown {
    if ((kind & (NULL | UNDEFINED | COMPRESSED)) === 0) return this.serializer.deserialize(payload);
    if (kind & NULL) return null;
    if (kind & UNDEFINED) return undefined;
    const { threshold, maxBytes } = this.compression;
    if (threshold === Infinity) throw new Error('it is compressed, and "cache.compression" is off');
    return this.serializer.deserialize(inflateRawSync(payload, { maxOutputLength: maxBytes }));
  }

  /** As `valueOf`, and shares no bytes with the entry, of which there may be further values. */
  copyOf(kept: Entry): unknown {
    return this.valueOf(this.sharesBytes ? { ...kept, payload: Buffer.from(kept.payload) } : kept);
  }

  private head(kind: number, { expiresAt, loadTime, tags }: EntryMark): string {
    const more = loadTime !== undefined || tags !== undefined;
    const flags = String.fromCharCode(HEADER.version, HEADER.flags + (more ? kind | MORE : kind));
    const by = (kind & (NULL | UNDEFINED)) === 0 ? this.serializedBy : '';
    const rest = more ? JSON.stringify({ t: loadTime, g: tags }) : '';
    return `${flags}${Math.max(0, Math.round(expiresAt)).toString(36)}${by}${rest}\n`;
  }
}

/** Of its name, or of the text of its functions: always of one length, and the same in every process of one build. */
function digestOf(serializer: CacheSerializer): string {
  const { name } = serializer;
  const texts = ['serialize', 'deserialize'].map((method) => String(Reflect.get(serializer, method)));
  const identity = name === undefined ? texts.join('\n') : `name:${name}`;
  return createHash('sha1').update(identity).digest('base64url').slice(0, DIGEST_LENGTH);
}

/** Whether it was expired softly: it is fresh no more, whatever the clock says. */
export function isExpired({ kind }: Entry): boolean {
  return (kind & HEADER.expired) !== 0;
}

/** That there is nothing. */
export function isNothing({ kind }: Entry): boolean {
  return (kind & (NULL | UNDEFINED)) !== 0;
}

/** A whole number that can be counted up. */
export function countable(value: unknown): value is number {
  return Number.isSafeInteger(value) && !Object.is(value, -0);
}

/** The number that stands there instead of an envelope. */
export function countedNumber(data: Buffer): number | undefined {
  const first = data[0] ?? 0;
  if (first !== MINUS && !(first >= ZERO && first <= NINE)) return undefined;
  const digits = data.toString('latin1');
  return /^-?\d+$/.test(digits) ? Number(digits) : undefined;
}

function joined(first: string, payload: string | Buffer): StoredData {
  return typeof payload === 'string' ? first + payload : Buffer.concat([Buffer.from(first), payload]);
}

function entry(
  kind: number,
  expiresAt: number,
  more: { t?: number; g?: TagStamp } | undefined,
  payload: Buffer,
): Entry {
  return { kind, expiresAt, keptStale: (kind & HEADER.keptStale) !== 0, loadTime: more?.t, tags: more?.g, payload };
}
