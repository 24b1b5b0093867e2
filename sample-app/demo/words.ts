/** A number and what is counted: "1 process", "2 processes". */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** A share from 0 to 1, as in "12.3 %". */
export function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

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
