import { createHash } from 'node:crypto';

/** One SQL statement. Connections prepare it under its name, once each. */
export interface Statement {
  readonly name: string;
  readonly text: string;
}

/**
 * Names a statement by what it does and by a digest of its text. Behind a pooler, one connection of the server serves
 * several versions of the package, and must never run the statement that another version prepared under the same name.
 * PostgreSQL reads 63 characters of a name.
 */
export function statementOf(does: string, text: string): Statement {
  const digest = createHash('sha256').update(text).digest('hex').slice(0, 16);
  return { name: `nest_redis_lock.${does}_${digest}`, text };
}
