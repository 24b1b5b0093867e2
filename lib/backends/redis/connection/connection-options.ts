import type { Cluster, Redis, RedisOptions, SentinelAddress } from 'ioredis';
import { isNodeRedis, isNodeRedisPool } from './node-redis-clients.js';
import type { NodeRedisConnection, RedisConnection } from '../../../options/redis-connection.js';
import { isCluster, type NodeOptions, type RedisClient } from './redis-client.js';
import { ioredis, type ConnectionOption } from './ioredis.js';
import { textOf } from '../../../errors/limited-log.js';
import { familyIn } from '../../../keys/key-part.js';
import { CUT_IN_PASSWORD, ENCODE_PASSWORD, isCutInPassword, shownConnection } from '../../../options/option-checks.js';
import { startUpNodes } from './own-client.js';

const ACCEPTED =
  'give an ioredis client or Cluster, a node-redis client, Sentinel or Cluster, ioredis options such as ' +
  '{ host, port }, or a redis:// URL';

/** The remedies for options and URL parameters of other clients. */
const OTHER_NAMES: Readonly<Record<string, string>> = {
  url: 'pass the URL itself, as a string',
  uri: 'pass the URL itself, as a string',
  connectionstring: 'pass the URL itself, as a string',
  socket: 'ioredis takes host, port and tls beside the other options, not in "socket"',
  hostname: 'ioredis calls it "host"',
  user: 'ioredis calls it "username"',
  pass: 'ioredis calls it "password"',
  auth: 'ioredis calls it "password"',
  database: 'ioredis calls it "db"',
  ssl: 'ioredis calls it "tls", and takes an object',
  nodes: 'make the Cluster yourself: new Cluster(nodes)',
  rootnodes: 'make the Cluster yourself: new Cluster(nodes)',
  cluster: 'make the Cluster yourself: new Cluster(nodes)',
};

/** Options without a default, which the defaults of an installed ioredis therefore do not list. */
const WITHOUT_DEFAULT = [
  'allowHalfOpen',
  'autoSelectFamily',
  'autoSelectFamilyAttemptTimeout',
  'blockingTimeout',
  'blockingTimeoutGrace',
  'blockList',
  'clientInfoTag',
  'commandQueue',
  'commandTimeout',
  'Connector',
  'disableClientInfo',
  'disconnectTimeout',
  'enableTLSForSentinelMode',
  'failoverDetector',
  'fd',
  'himportFieldsets',
  'hints',
  'keepAliveInitialDelay',
  'localAddress',
  'localPort',
  'lookup',
  'natMap',
  'noDelay',
  'offlineQueue',
  'onread',
  'path',
  'preferredSlaves',
  'protocol',
  'readable',
  'replyMapping',
  'scripts',
  'sentinelCommandTimeout',
  'sentinelMaxConnections',
  'sentinelPassword',
  'sentinelReconnectStrategy',
  'sentinels',
  'sentinelTLS',
  'sentinelUsername',
  'showFriendlyErrorStack',
  'signal',
  'socketTimeout',
  'timeout',
  'tls',
  'typeOfService',
  'updateSentinels',
  'writable',
];

/** Recognises a client of any version of ioredis: two major versions in one application are two classes. */
export function isRedisClient(connection: unknown): connection is Redis | Cluster {
  const client = connection as Partial<Redis> | null | undefined;
  return (
    typeof client === 'object' &&
    client !== null &&
    typeof client.evalsha === 'function' &&
    typeof client.duplicate === 'function' &&
    typeof client.on === 'function' &&
    typeof client.status === 'string'
  );
}

/**
 * @throws the option's ConfigError for a value that ioredis would take for a server on 127.0.0.1, or for no server at
 * all
 */
export function requireRedisConnection(
  option: ConnectionOption,
  connection: unknown,
): asserts connection is RedisConnection {
  const refuse = (received: string, remedy = ACCEPTED) =>
    new option.ConfigError(`Option "${option.name}" ${received}; ${remedy}`);
  if (isRedisClient(connection) || isNodeRedis(connection)) {
    requireUsable(connection, refuse);
    return;
  }
  if (typeof connection === 'string') {
    const isUrl = /^rediss?:\/\/./.test(connection);
    if (isUrl && !isReadable(connection)) {
      throw refuse('is a URL that cannot be read', 'correct it, and percent-encode special characters such as %');
    }
    if (isUrl && isCutInPassword(connection)) throw refuse(`is ${CUT_IN_PASSWORD}`, `give ${ENCODE_PASSWORD}`);
    if (isUrl || connection.startsWith('/')) {
      requireDatabase(databaseIn(connection), refuse);
      requireKeyPrefix(parametersOf(connection).get('keyPrefix'), refuse);
      return;
    }
    throw refuse(
      `is ${shownConnection(connection)}`,
      'give a URL that begins with redis:// or rediss://, or the path of a socket',
    );
  }
  if (typeof connection !== 'object' || connection === null) throw refuse(`is ${shownValue(connection)}`);
  if (connection instanceof URL) throw refuse('is a URL object', 'pass its href, a string');
  if (Array.isArray(connection)) throw refuse('is a list', OTHER_NAMES['nodes']);
  if (typeof (connection as { then?: unknown }).then === 'function') throw refuse('is a promise', 'await it');
  const foreign = foreignClient(connection);
  if (foreign) throw refuse(`looks like ${foreign}`);
  const names = Object.keys(connection);
  if (names.length === 0 && !isPlain(connection)) throw refuse(`is an instance of ${connection.constructor.name}`);
  const known = knownOptions(option);
  for (const name of names)
    if (!known.has(name)) throw refuse(`has the unknown property "${name}"`, remedyFor(name, known));
  requireAddress(connection, refuse);
  requireDatabase((connection as RedisOptions).db, refuse);
  requireKeyPrefix((connection as RedisOptions).keyPrefix, refuse);
}

/** Whether ioredis can read the URL: else it would throw an error of its own, which shows no option. */
function isReadable(text: string): boolean {
  try {
    const { username, password } = new URL(text);
    decodeURIComponent(username);
    decodeURIComponent(password);
    return true;
  } catch {
    return false;
  }
}

type Refuse = (received: string, remedy: string) => Error;

/** ioredis and node-redis go on in database 0 where the database is no number. */
function requireDatabase(database: unknown, refuse: Refuse): void {
  const given = database ?? 0;
  if (typeof given === 'string' ? /^\d+$/.test(given) : Number.isInteger(given) && (given as number) >= 0) return;
  throw refuse(`has the database ${shownValue(given)}`, 'give a whole number from 0 on');
}

/** The keys of an application without that prefix would begin so. */
function requireKeyPrefix(keyPrefix: unknown, refuse: Refuse): void {
  const family = typeof keyPrefix === 'string' ? familyIn(keyPrefix) : undefined;
  if (family === undefined) return;
  throw refuse(
    `has the keyPrefix ${shownValue(keyPrefix)}`,
    `give one without "${family}" before a colon: keys of applications with another prefix begin so`,
  );
}

function requireUsable(client: Redis | Cluster | NodeRedisConnection, refuse: Refuse): void {
  const options: ClientOptions = (Reflect.get(client, 'options') as ClientOptions | undefined) ?? {};
  try {
    requireDatabase(options.redisOptions?.db ?? options.db ?? options.database, refuse);
    requireKeyPrefix(options.keyPrefix, refuse);
  } catch (error) {
    // ioredis selects it once it is connected, and leaves the rejection unhandled.
    if (isRedisClient(client)) client.disconnect();
    throw error;
  }
}

/** What the options of a client of ioredis, of its Cluster and of node-redis call the database. */
interface ClientOptions {
  readonly db?: number;
  readonly redisOptions?: { readonly db?: number };
  readonly database?: number;
  readonly keyPrefix?: string;
}

/** The database of a URL, or of the path of a socket: the last part of the path, or else a parameter. */
function databaseIn(connection: string): string | undefined {
  const isSocket = connection.startsWith('/');
  const [, path = ''] = /^(?:[^?#/]*\/\/[^?#/]*)?\/?([^?#]*)/.exec(connection) ?? [];
  return (isSocket ? '' : path) || (parametersOf(connection).get('db') ?? undefined);
}

function parametersOf(connection: string): URLSearchParams {
  return new URLSearchParams(/^[^?#]*\?([^#]*)/.exec(connection)?.[1]);
}

function requireAddress({ host, port }: RedisOptions, refuse: Refuse): void {
  if (host !== undefined && (typeof host !== 'string' || host === '')) {
    throw refuse(`has the host ${shownValue(host)}`, 'give a host name or an address');
  }
  if (host?.includes('://')) throw refuse('has a URL as its host', 'pass the URL itself, as a string');
  if (host?.includes('@')) throw refuse('has "@" in its host', 'give user and password as "username" and "password"');
  const number = Number(port);
  if (port !== undefined && !(Number.isInteger(number) && number > 0 && number < 65_536)) {
    throw refuse(`has the port ${shownValue(port)}`, 'give a number from 1 to 65535');
  }
}

function foreignClient(connection: object): string | undefined {
  const has = (name: string) => typeof (connection as Record<string, unknown>)[name] === 'function';
  const kind = connection.constructor?.name;
  if (isNodeRedisPool(connection)) return 'a pool of node-redis, whose connections keep no order';
  if (has('sendCommand') && (has('evalSha') || has('EVALSHA')))
    return 'a node-redis client before version 5, or in legacy mode';
  if (has('evalsha') || has('sendCommand') || has('customCommand') || has('send_command')) {
    return `a client of another library (${kind})`;
  }
  return undefined;
}

function remedyFor(name: string, known: ReadonlySet<string>): string {
  const other = OTHER_NAMES[name.toLowerCase()];
  if (other && !known.has(name.toLowerCase())) return other;
  const nearest = nearestName(name, known);
  return nearest === undefined ? ACCEPTED : `did you mean "${nearest}"? (Names are those of ioredis)`;
}

/** The options of the installed ioredis, which may be newer than the list above. */
function knownOptions(option: ConnectionOption): ReadonlySet<string> {
  const { Redis } = ioredis(option);
  const unconnected = new Redis({ lazyConnect: true });
  const names = new Set([...Object.keys(unconnected.options), ...WITHOUT_DEFAULT]);
  unconnected.disconnect();
  return names;
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || prototype === Object.prototype;
}

function shownValue(value: unknown): string {
  return typeof value === 'string' ? `"${value}"` : textOf(value);
}

/** The known name that is spelt most like the given one; `undefined` when none is close. */
function nearestName(given: string, known: Iterable<string>): string | undefined {
  const limit = Math.min(Math.max(2, Math.floor(given.length / 3)), given.length - 1);
  let nearest: { name: string; distance: number } | undefined;
  for (const name of known) {
    const distance = editDistance(given.toLowerCase(), name.toLowerCase());
    if (distance <= limit && distance < (nearest?.distance ?? Infinity)) nearest = { name, distance };
  }
  return nearest?.name;
}

/** How many letters have to be inserted, removed or replaced. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const [line, letter] of from.split('').entries()) {
    const next = [line + 1];
    for (let index = 0; index < to.length; index++) {
      const replaced = (row[index] ?? 0) + (letter === to[index] ? 0 : 1);
      next.push(Math.min(replaced, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}

/** The server of a client as messages name it, without passwords. */
export function serverOf(client: RedisClient): string {
  if (isCluster(client)) {
    const known = client.nodes('all').map(({ options }) => options);
    return `Redis Cluster at ${(known.length > 0 ? known : startUpNodes(client)).map(addressOf).join(', ')}`;
  }
  const { options } = client;
  const { path, sentinels, name } = options;
  if (sentinels && sentinels.length > 0)
    return `Redis${name === undefined ? '' : ` "${name}"`} of the Sentinels at ${sentinels.map(shown).join(', ')}`;
  return `Redis at ${path ?? addressOf(options)}`;
}

/** The name of a node in the events of a Cluster. */
export function addressOf({ host, port }: Pick<NodeOptions, 'host' | 'port'>): string {
  return `${host}:${port}`;
}

function shown({ host = 'localhost', port = 26_379 }: Partial<SentinelAddress>): string {
  return `${host}:${port}`;
}
