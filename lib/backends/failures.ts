import { types } from 'node:util';
import { refusalIn, type BackendRefusal } from '../contracts/store.js';
import { messageOf } from '../errors/limited-log.js';

/** What an operator can do about an error. The first pattern that matches its code or message applies. */
export type Remedies = readonly (readonly [pattern: RegExp, remedy: string])[];

/** Why a call to a server failed: names the server, the cause and the remedy. */
export abstract class ServerFailure extends Error {
  /** The code of the cause, such as `ECONNREFUSED`. */
  readonly code?: string;
  /** Whether the server goes on refusing until somebody mends it: no outage. `'key'`: it refuses one name alone. */
  readonly lasts: boolean | 'key' = false;

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    const code = codeOf(cause);
    if (code !== undefined) this.code = code;
  }
}

/** The failure, in one line, unless `error` says all of it already. */
export function failureOf<Failure extends ServerFailure>(
  server: string,
  error: unknown,
  remedies: Remedies,
  Of: new (message: string, cause?: unknown) => Failure,
): Failure | BackendRefusal {
  if (error instanceof Of) return error;
  return refusalIn(error) ?? new Of(`${server}: ${causeOf(error)}${remedyClause(error, remedies)}`, error);
}

export function codeOf(error: unknown): string | undefined {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === 'string' ? code : undefined;
}

/** What happened, in one line. A connection that was tried at several addresses has one error for each. */
export function causeOf(error: unknown): string {
  const each =
    error instanceof AggregateError ? (error.errors as Error[]).map(({ message }) => message).join(', ') : '';
  const code = codeOf(error);
  const text = (each || messageIn(error) || String(code)).split('\n', 1)[0] as string;
  return code === undefined || text.includes(code) ? text : `${text} (${code})`;
}

/** What to do about the error, as the end of a sentence that says what happened; empty where nothing is known. */
export function remedyClause(error: unknown, remedies: Remedies): string {
  const message = messageIn(error);
  const text = `${codeOf(error) ?? ''} ${message}`;
  const remedy = remedies.find(([pattern]) => pattern.test(text) || pattern.test(message))?.[1];
  return remedy === undefined ? '' : `; ${remedy}`;
}

/** Also of an error of another realm, as a test runner has them. */
function messageIn(error: unknown): string {
  return types.isNativeError(error) ? error.message : messageOf(error);
}
