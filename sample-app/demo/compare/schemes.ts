import type { LockBackendName, Strategy } from '../shop-facts.js';

/** One way to keep orders for a product apart. */
export interface Scheme {
  readonly name: string;
  readonly title: string;
  readonly strategy: Strategy;
  /** Where a strategy that takes locks keeps them. */
  readonly backend: LockBackendName;
  /** The server whose restart is tried: that of the locks, or the database with the stock. */
  readonly keptBy: 'locks' | 'database';
  /** Whether it promises that no piece is sold twice, at least while nothing fails. */
  readonly promises: boolean;
}

/** Schemes that run on the same processes of the shop. */
export type Setup = Pick<Scheme, 'backend' | 'keptBy'> & { readonly schemes: readonly Scheme[] };

const SCHEMES: readonly Scheme[] = [
  inDatabase('none', 'no protection', 'none', false),
  onRedis('setnx', 'SETNX', 'setnx', false),
  onRedis('setnx-expiry', 'SET NX PX, no owner', 'setnx-expiry', false),
  onRedis('lock', 'lock, Redis', 'lock', true),
  onRedis('fenced', 'fenced lock, Redis', 'fenced', true),
  lockIn('redlock', 'lock, 5 × Redis'),
  lockIn('postgres', 'lock, PostgreSQL'),
  lockIn('postgres-advisory', 'lock, pg advisory'),
  lockIn('mysql', 'lock, MariaDB'),
  lockIn('mysql-get-lock', 'lock, GET_LOCK'),
  lockIn('etcd', 'lock, etcd'),
  lockIn('zookeeper', 'lock, ZooKeeper'),
  inDatabase('pessimistic', 'SELECT FOR UPDATE', 'pessimistic', true),
  inDatabase('optimistic', 'version column', 'optimistic', true),
  inDatabase('atomic', 'conditional UPDATE', 'atomic', true),
];

export const SCHEME_NAMES: readonly string[] = SCHEMES.map(({ name }) => name);

/** The schemes of these names, in the order of the table. */
export function schemesOf(names: readonly string[]): readonly Scheme[] {
  return SCHEMES.filter(({ name }) => names.includes(name));
}

export function setupsOf(schemes: readonly Scheme[]): readonly Setup[] {
  const setups = new Map<string, Setup & { readonly schemes: Scheme[] }>();
  for (const scheme of schemes) {
    const { backend, keptBy } = scheme;
    const key = `${backend} ${keptBy}`;
    const setup = setups.get(key) ?? { backend, keptBy, schemes: [] };
    setup.schemes.push(scheme);
    setups.set(key, setup);
  }
  return [...setups.values()];
}

function onRedis(name: string, title: string, strategy: Strategy, promises: boolean): Scheme {
  return { name, title, strategy, backend: 'redis', keptBy: 'locks', promises };
}

function inDatabase(name: string, title: string, strategy: Strategy, promises: boolean): Scheme {
  return { name, title, strategy, backend: 'redis', keptBy: 'database', promises };
}

function lockIn(backend: LockBackendName, title: string): Scheme {
  return { name: backend, title, strategy: 'lock', backend, keptBy: 'locks', promises: true };
}
