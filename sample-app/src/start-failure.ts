import pg from 'pg';
import { DatabaseUnavailableException } from './database/database.js';
import type { Settings } from './settings.js';

/** Says in one line why the shop cannot start, and what to do about it. */
export function startFailure(error: unknown, { port, databaseUrl }: Settings): string {
  const { code } = (error ?? {}) as { code?: unknown };
  if (code === 'EADDRINUSE') return `PORT ${port} is taken: set PORT to another one, or to 0 for any that is free`;
  if (code === 'EACCES') return `PORT ${port} is not allowed: set PORT to 1024 or more`;
  if (error instanceof DatabaseUnavailableException) {
    return `DATABASE_URL: no answer from ${placeOf(databaseUrl)} (${reasonOf(error.cause)}). Start PostgreSQL there, or name another place`;
  }
  if (error instanceof pg.DatabaseError) return `DATABASE_URL: ${placeOf(databaseUrl)} says: ${error.message}`;
  return reasonOf(error);
}

/** The host, port and path of a server's URL, without its password. */
function placeOf(url: string): string {
  if (!URL.canParse(url)) return 'the server';
  const { host, pathname } = new URL(url);
  return `${host}${pathname}`;
}

/**
 * The message of an error. An error of several connections (one for each address of a host) has no message of its own.
 */
function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}
