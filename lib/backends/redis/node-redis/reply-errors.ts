/**
 * Every error that Redis answers begins with its code, as in "READONLY You can't write". Those of node-redis do not.
 */
const CODE = /^[A-Z][A-Z0-9_]* /;

/** Whether Redis answered this error. node-redis has classes for that, but no names that a bundler keeps. */
export function isReplyError(error: unknown): error is Error {
  return error instanceof Error && CODE.test(error.message);
}

/** Gives an error that Redis answered the name by which the library recognises it: the one of ioredis. */
export function named(error: unknown): unknown {
  if (isReplyError(error)) error.name = 'ReplyError';
  return error;
}

/**
 * The last answer to a command that node-redis 6 has redirected too often, in the form of ioredis; node-redis 5 rejects
 * with the answer itself.
 */
export function lastRedirection(error: unknown): Error | undefined {
  if (!(error instanceof Error) || !isReplyError(error.cause)) return undefined;
  const { message } = error.cause;
  return new Error(`Too many Cluster redirections. Last error: ReplyError: ${message}`, { cause: error });
}
