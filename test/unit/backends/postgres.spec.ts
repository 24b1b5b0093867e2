import pg, { type ClientConfig } from 'pg';
import { advisory, leaseTable } from 'nest-redis-lock/postgres';
import { advisoryStatements } from '../../../lib/backends/postgres/advisory/advisory-sequence.js';
import { advisoryKey } from '../../../lib/backends/postgres/advisory/advisory-session.js';
import { statementOf } from '../../../lib/backends/postgres/connection/postgres-link.js';
import { leaseStatements } from '../../../lib/backends/postgres/lease-table/lease-statements.js';
import { inOrder, lockKey } from '../../../lib/backends/postgres/lease-table/lease-table.js';
import { LockConfigError } from '../../../lib/errors/lock-errors.js';

// Other versions of the package work on the same locks: a name never gets another key.
it.each([
  [undefined, 'order:7', 'a5398888071b41a24d87c2753ed5c6c16dc28ba2cde11de9e9485408dc154519', '-6541046865962778206'],
  ['shop', 'order:7', 'b2be2a7e876a68446bb09839e3e9d6afbdc52d5c69ac21dbdb0c018043ff560c', '-5566965366457210812'],
  [undefined, 'a\0b', 'a85df8c592d5839c940bf6923815783e83da581662c6ae8fc6f71a433d58b8f4', '-6314617575047855204'],
])('the keys of a name with the prefix %j stay: %j', (prefix, name, digest, number) => {
  expect(lockKey(prefix, name)).toBe(`\\x${digest}`);
  expect(advisoryKey(prefix, name)).toBe(number);
});

it('orders keys as PostgreSQL orders their bytes', () => {
  const keyed = Array.from({ length: 100 }, (_, index) => ({ key: lockKey(undefined, `${index}`) }));
  const bytes = keyed.map(({ key }) => Buffer.from(key.slice(2), 'hex')).toSorted((a, b) => Buffer.compare(a, b));
  expect(inOrder(keyed).map(({ key }) => key)).toEqual(bytes.map((each) => `\\x${each.toString('hex')}`));
});

const LONGEST_SCHEMA = 's'.repeat(40);

it('names each statement by its text, in at most 63 characters', () => {
  const statements = ['nest_redis_lock', LONGEST_SCHEMA].flatMap((schema) => [
    ...Object.values(leaseStatements(schema)),
    ...Object.values(advisoryStatements(schema)),
  ]);
  const texts = new Map(statements.map(({ name, text }) => [name, text]));
  expect(texts.size).toBe(new Set(statements.map(({ text }) => text)).size);
  for (const name of texts.keys()) expect(name.length).toBeLessThanOrEqual(63);
});

it('gives a statement that another version words differently another name', () => {
  expect(statementOf('take', 'SELECT 1').name).toBe('nest_redis_lock.take_e004ebd5b5532a4b');
  expect(statementOf('take', 'SELECT 2').name).not.toBe(statementOf('take', 'SELECT 1').name);
});

describe.each<[string, string | ClientConfig, string]>([
  ['a URL with a wrong port', 'postgres://shop:a-secret@db:99999/shop', 'Invalid URL'],
  ['a file that is missing', 'postgres://shop:a-secret@db/shop?sslrootcert=/none', 'ENOENT'],
  ['a URL among the options', { connectionString: 'postgres://shop:a-secret@db:99999/shop' }, 'Invalid URL'],
])('given %s', (_, connection, message) => {
  it.each([
    ['leaseTable', () => leaseTable(connection)],
    ['advisory', () => advisory(connection)],
    ['messages', () => leaseTable('postgres://db/shop', { messages: connection })],
  ])('%s refuses it, and shows no password', (option, make) => {
    const name = option === 'messages' ? option : 'connection';
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(new RegExp(`^Option "${name}" cannot be read: .*${message}.*; correct it`));
    expect(make).not.toThrow('a-secret');
  });
});

describe('connections whose replies are binary, in which pg reads no list', () => {
  const binary = { host: 'db', binary: true };
  it.each([
    ['leaseTable', 'connection', () => leaseTable(binary)],
    ['leaseTable of a pool', 'connection', () => leaseTable(new pg.Pool(binary))],
    ['advisory', 'connection', () => advisory(binary)],
    ['advisory of a pool', 'connection', () => advisory(new pg.Pool(binary))],
    ['messages', 'messages', () => leaseTable('postgres://db/shop', { messages: binary })],
  ])('%s refuses them', (_, option, make) => {
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(`Option "${option}.binary" is true; give connections without it`);
  });

  it('are refused where they are the default of pg', () => {
    pg.defaults.binary = true;
    try {
      expect(() => advisory('postgres://db/shop')).toThrow(LockConfigError);
      expect(() => leaseTable(new pg.Pool({ host: 'db' }))).toThrow(LockConfigError);
    } finally {
      pg.defaults.binary = false;
    }
  });
});
