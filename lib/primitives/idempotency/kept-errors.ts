import { HttpException } from '@nestjs/common';

/** What is kept of an error. */
type KeptError =
  | { readonly status: number; readonly body: string | object; readonly name: string; readonly message: string }
  | { readonly name: string; readonly message: string; readonly code?: string | number }
  | { readonly thrown: unknown };

/** What to keep of an error: status and body of an `HttpException`; name, message and `code` of any other. */
export function keptErrorOf(error: unknown): KeptError {
  if (!(error instanceof Error)) return { thrown: error };
  const { name, message } = error;
  if (error instanceof HttpException) return { status: error.getStatus(), body: error.getResponse(), name, message };
  const { code } = error as { code?: unknown };
  return { name, message, ...((typeof code === 'string' || typeof code === 'number') && { code }) };
}

/** The error for repeats. Its class is `HttpException` or `Error`, whatever it was. */
export function errorOf(kept: KeptError): unknown {
  if ('thrown' in kept) return kept.thrown;
  const { name, message } = kept;
  if ('status' in kept) return Object.assign(new HttpException(kept.body, kept.status), { name, message });
  return Object.assign(new Error(message), { name, ...(kept.code !== undefined && { code: kept.code }) });
}
