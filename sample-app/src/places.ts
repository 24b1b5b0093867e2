/** The host, port and path of a server's URL, without its password. */
export function placeOf(url: string): string {
  if (!URL.canParse(url)) return 'the server';
  const { host, pathname } = new URL(url);
  return `${host}${pathname}`;
}

/**
 * The message of an error. An error of several connections (one for each address of a host) has no message of its own.
 */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}
