import type { Reply } from './order-client.js';

/** What became of an order. */
export type Answer = 'accepted' | 'outOfStock' | 'busy' | 'errors';

export function answerOf({ status, body }: Reply): Answer {
  if (status === 201) return 'accepted';
  if (status === 423) return 'busy';
  if (status !== 409) return 'errors';
  return codeOf(body) === 'OUT_OF_STOCK' ? 'outOfStock' : 'busy';
}

/** The name of this error for people, the same for all errors of its kind. */
export function kindOfError(failure: Reply | Error): string {
  if (!(failure instanceof Error)) return `${failure.status} ${codeOf(failure.body) ?? ''}`.trim();
  if (['AbortError', 'TimeoutError'].includes(failure.name)) return 'no answer';
  return (failure as NodeJS.ErrnoException).code ?? failure.message;
}

function codeOf(body: string): string | undefined {
  return /"code":"(\w+)"/.exec(body)?.[1];
}
