/** The value of a response header. */
type HeaderValue = number | string | readonly string[];

/** The common part of Express responses and Fastify replies. */
export interface HttpResponse {
  readonly statusCode: number;
  /** In Express. */
  readonly headersSent?: boolean;
  /** In Fastify. */
  readonly sent?: boolean;
  getHeader(name: string): HeaderValue | undefined;
  /** A copy, with names in lower case. */
  getHeaders(): Readonly<Record<string, HeaderValue | undefined>>;
  header(name: string, value: string | string[]): unknown;
  status(code: number): unknown;
}

/** Whether a handler with `@Res()` has answered already. */
export function isSent({ headersSent, sent }: HttpResponse): boolean {
  return headersSent ?? sent ?? false;
}
