import { advisoryStatements } from '../../lib/backends/postgres/advisory/advisory-sequence.js';
import { statementOf } from '../../lib/backends/postgres/connection/postgres-link.js';
import { leaseStatements } from '../../lib/backends/postgres/lease-table/lease-statements.js';

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
