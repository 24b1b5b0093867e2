import { isIPv6 } from 'node:net';
import { PrimitiveConfigError } from '../errors/primitive-errors.js';
import { hashKey } from '../keys/hash-key.js';

/** Longer parts of a key are hashed. */
const LONGEST = 128;

/** The common part of the requests of Express and Fastify. */
export interface LimitedRequest {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The client's address; behind a proxy, set `trust proxy` (Express) or `trustProxy` (Fastify). */
  readonly ip?: string | undefined;
  /** What authentication put there. */
  readonly user?: unknown;
}

/**
 * What tells clients apart: their address (`'ip'`), a header (`'header:x-api-key'`), a property of `request.user`
 * (`'user:id'`), or a function of the request. A request without such a header, property or result counts by its
 * address; one with an object or a promise there is refused with `PrimitiveConfigError`.
 */
export type ClientKey =
  'ip' | `header:${string}` | `user:${string}` | ((request: LimitedRequest) => string | undefined);

/** The count that a request belongs to. */
export function clientOf(request: LimitedRequest, key: ClientKey): string {
  if (typeof key === 'function') return partOf('key', key(request)) ?? addressOf(request);
  const [kind, name = ''] = key.split(/:(.*)/s, 2);
  if (kind === 'header') return partOf(key, request.headers[name.toLowerCase()]) ?? addressOf(request);
  if (kind === 'user')
    return partOf(key, (request.user as Record<string, unknown> | undefined)?.[name]) ?? addressOf(request);
  return addressOf(request);
}

/** @throws PrimitiveConfigError for what is no text, such as an ObjectId: clients would count by address in silence */
function partOf(kind: string, value: unknown): string | undefined {
  const text = typeof value === 'number' || typeof value === 'bigint' ? String(value) : value;
  if (text === undefined || text === null || text === '') return undefined;
  if (typeof text !== 'string') {
    throw new PrimitiveConfigError(
      `The "key" of a rate limit, ${kind === 'key' ? 'a function' : `"${kind}"`}, found ${kindOf(text)} and no text; ` +
        'give a function such as (request) => String(request.user._id)',
    );
  }
  // The client chooses the header: it must not choose how much memory its key takes.
  return `${kind}=${text.length > LONGEST ? hashKey(text.toWellFormed()) : text.toWellFormed()}`;
}

function kindOf(value: unknown): string {
  if (value instanceof Promise) return 'a promise';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/**
 * A network of IPv6 counts as one client (its first 64 bits): a single host may use any address of it.
 */
function addressOf({ ip = '' }: LimitedRequest): string {
  // A proxy may be trusted to tell addresses, and yet pass on any text that the client sent.
  const address = ip.replace(/%.*$/s, '').replace(/^::ffff:(?=\d+\.\d+\.\d+\.\d+$)/i, '');
  const part = partOf('ip', isIPv6(address) ? networkOf(address) : address);
  if (part === undefined) {
    throw new PrimitiveConfigError(
      'The request has no address (request.ip), so that its client cannot be limited; give a "key" of another kind',
    );
  }
  return part;
}

function networkOf(address: string): string {
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const first = head === '' ? [] : head.split(':');
  if (tail === undefined) return `${first.slice(0, 4).join(':')}::/64`;
  const last = tail === '' ? [] : tail.split(':');
  const groups = [...first, ...Array.from({ length: 8 - first.length - last.length }, () => '0'), ...last];
  return `${groups.slice(0, 4).join(':')}::/64`;
}
