import { type CacheSerializer, typedSerializer } from '../cache/values/envelope.js';
import { isSent, whenHeadIsSent, type HttpResponse } from './http-response.js';

/** What is kept of an answer. */
export interface KeptResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: unknown;
}

/** The body as JSON, as it is sent; what else an object gives as its JSON, such as text; or what is no object. */
type StoredBody = { readonly json: string } | { readonly written: unknown } | { readonly body: unknown };

type StoredResponse = Omit<KeptResponse, 'body'> & StoredBody;

const typed = typedSerializer();

const REPLAYED = 'Idempotent-Replayed';

/** They belong to one answer on one connection: the server sets them anew. */
const OF_THE_CONNECTION = new Set([
  'connection',
  'content-length',
  'date',
  'keep-alive',
  'trailer',
  'transfer-encoding',
]);

/**
 * Stores the JSON of a body rather than the body: an object with `toJSON`, such as a document of a database, is then
 * repeated as it was sent.
 */
export const RESPONSES: CacheSerializer = {
  name: 'http-response',
  serialize(value) {
    const { status, headers, body } = value as KeptResponse;
    return typed.serialize({ status, headers, ...storedBody(body) } satisfies StoredResponse);
  },
  deserialize(data): KeptResponse {
    const { status, headers, ...stored } = typed.deserialize(data) as StoredResponse;
    return { status, headers, body: bodyOf(stored) };
  },
};

/** A body that is sent as this value in JSON: `"text"`, where a body that is text itself is sent without quotes. */
export class WrittenBody {
  constructor(readonly value: unknown) {}

  toJSON(): unknown {
    return this.value;
  }
}

/** The headers that are set by now, as text: a handler may add to the list of one. */
export function headersOf(response: HttpResponse): ReadonlyMap<string, string> {
  return new Map(Object.entries(response.getHeaders()).map(([name, value]) => [name, String(value)]));
}

/**
 * The headers that the handler has set: those that differ from what they were before it. Cookies are left out: they may
 * be of a session that has ended since.
 */
export function headersSince(before: ReadonlyMap<string, string>, response: HttpResponse): string[] {
  const set = [...headersOf(response)].filter(([name, value]) => name !== 'set-cookie' && value !== before.get(name));
  return set.map(([name]) => name);
}

/** The answer of a handler: its body, the status that it has given, and headers as they are set on the response. */
export function keptResponse(
  status: number,
  response: HttpResponse,
  names: readonly string[],
  body: unknown,
): KeptResponse {
  const headers: Record<string, string | string[]> = {};
  for (const name of names) {
    const value = OF_THE_CONNECTION.has(name.toLowerCase()) ? undefined : response.getHeader(name);
    if (value !== undefined) headers[name] = typeof value === 'object' ? [...value] : String(value);
  }
  return { status, headers, body };
}

/** The same of what a handler has given where somebody else has answered, so that the response shows theirs. */
export function responseOf(
  { status, headers: given }: { readonly status: number; readonly headers: ReadonlyMap<string, string | string[]> },
  names: readonly string[] | undefined,
  body: unknown,
): KeptResponse {
  const chosen = names && new Set(names.map((name) => name.toLowerCase()));
  const headers = [...given].filter(
    ([name]) => !OF_THE_CONNECTION.has(name) && (chosen ? chosen.has(name) : name !== 'set-cookie'),
  );
  return { status, headers: Object.fromEntries(headers), body };
}

/** Sets status and headers again. The caller sends the body. An interceptor above may yet make a failure of it. */
export function repeatResponse(response: HttpResponse, { status, headers }: KeptResponse): void {
  if (isSent(response)) return;
  response.status(status);
  for (const [name, value] of Object.entries(headers)) response.header(name, value);
  markAsRepeated(response);
  if (status >= 400) return;
  whenHeadIsSent(response, (head) => {
    if (head.status < 400) return;
    for (const [name, value] of Object.entries(headers)) head.remove(name, value);
    head.remove(REPLAYED, 'true');
  });
}

/** Tells the client that the answer is a repeated one, as Stripe does. */
export function markAsRepeated(response: HttpResponse): void {
  if (!isSent(response)) response.header(REPLAYED, 'true');
}

function storedBody(body: unknown): StoredBody {
  if (typeof body !== 'object' || body === null || body instanceof Uint8Array || body instanceof Date) return { body };
  let json: string | undefined;
  try {
    json = JSON.stringify(body) as string | undefined;
  } catch {
    // As for a bigint, which the application may send by a replacer of its own: it is kept as it is.
    return { body };
  }
  if (json === undefined) return { written: undefined };
  return /^[[{]/.test(json) ? { json } : { written: JSON.parse(json) };
}

function bodyOf(stored: StoredBody): unknown {
  if ('json' in stored) return JSON.parse(stored.json);
  return 'written' in stored ? new WrittenBody(stored.written) : stored.body;
}
