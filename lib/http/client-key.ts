import { isIPv4, isIPv6 } from 'node:net';
import { PrimitiveConfigError } from '../errors/primitive-errors.js';
import { hashKey } from '../keys/hash-key.js';
import { unawaited } from '../options/option-checks.js';

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
 * address; one with an object or a promise there is refused with `PrimitiveConfigError`. A header is kept as a digest;
 * what a property or a function gives stands in names at the store, in events and in the log: give no secret.
 */
export type ClientKey =
  'ip' | `header:${string}` | `user:${string}` | ((request: LimitedRequest) => string | undefined);

/** The count that a request belongs to. */
export function clientOf(request: LimitedRequest, key: ClientKey): string {
  if (typeof key === 'function') return partOf('key', unawaited(key(request))) ?? addressOf(request);
  const [kind, name = ''] = key.split(/:(.*)/s, 2);
  if (kind === 'header') return partOf(key, request.headers[name.toLowerCase()], secret) ?? addressOf(request);
  if (kind === 'user')
    return partOf(key, (request.user as Record<string, unknown> | undefined)?.[name]) ?? addressOf(request);
  return addressOf(request);
}

/** @throws PrimitiveConfigError for what is no text, such as an ObjectId: clients would count by address in silence */
function partOf(kind: string, value: unknown, label = shortened): string | undefined {
  const text = typeof value === 'number' || typeof value === 'bigint' ? String(value) : value;
  if (text === undefined || text === null || text === '') return undefined;
  if (typeof text !== 'string') {
    throw new PrimitiveConfigError(
      `The "key" of a rate limit, ${kind === 'key' ? 'a function' : `"${kind}"`}, found ${kindOf(text)} and no text; ` +
        'give a function such as (request) => String(request.user._id)',
    );
  }
  return `${kind}=${label(text.toWellFormed())}`;
}

/** A client may choose the text: it must not choose how much memory its key takes. */
function shortened(text: string): string {
  return text.length > LONGEST ? hashKey(text) : text;
}

/** What proves who a client is must not stand in names at the store, in events and in the log. */
function secret(text: string): string {
  return `#${hashKey(text).slice(0, 32)}`;
}

function kindOf(value: unknown): string {
  if (value instanceof Promise) return 'a promise';
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`;
}

/** All requests whose address is none are one client: the text may be any that a client has sent. */
export const INVALID_ADDRESS = 'ip=invalid';

/**
 * The client with the address of the request, whether with a port, in brackets or not. A network of IPv6 counts as one
 * client (its first 64 bits): a single host may use any address of it.
 */
export function addressOf({ ip = '' }: LimitedRequest): string {
  if (ip === '') {
    throw new PrimitiveConfigError(
      'The request has no address (request.ip), so that its client cannot be limited; give a "key" of another kind',
    );
  }
  const text = ip.trim().replace(/^"(.*)"$/s, '$1');
  const [, inBrackets, v4] = /^\[([^[\]]*)\](?::\d*)?$|^([\d.]+):\d*$/s.exec(text) ?? [];
  const address = (inBrackets ?? v4 ?? text).replace(/%.*$/s, '');
  if (isIPv4(address)) return `ip=${address}`;
  return isIPv6(address) ? `ip=${networkOf(address)}` : INVALID_ADDRESS;
}

/** IPv4 in IPv6: mapped (RFC 4291), or behind a translator (RFC 2765, 6052, 8215). */
const EMBEDDING = /^(?:0:0:0:0:0:ffff|0:0:0:0:ffff:0|64:ff9b:0:0:0:0|64:ff9b:1:[\da-f]+:0:0)$/;

function networkOf(address: string): string {
  const groups = groupsOf(address);
  if (!EMBEDDING.test(groups.slice(0, 6).join(':'))) return `${groups.slice(0, 4).join(':')}::/64`;
  const [high = 0, low = 0] = groups.slice(6).map((group) => Number.parseInt(group, 16));
  return [high >> 8, high & 0xff, low >> 8, low & 0xff].join('.');
}

/** Its eight groups, as the parser of URLs writes them: in lower case, without leading zeros. */
function groupsOf(address: string): string[] {
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const first = head === '' ? [] : head.split(':');
  if (tail === undefined) return first;
  const last = tail === '' ? [] : tail.split(':');
  return [...first, ...Array.from({ length: 8 - first.length - last.length }, () => '0'), ...last];
}
