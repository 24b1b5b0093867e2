import { StringDecoder } from 'node:string_decoder';
import { buildConnector, Client, Pool, type Dispatcher } from 'undici';
import { Timeouts } from '../../timing/clock.js';
import { causeOf } from '../failures.js';

/** Certificates in PEM. */
export interface EtcdTls {
  /** The authorities that may have signed the certificates of the servers. Default: those of Node.js. */
  ca?: string | Buffer | (string | Buffer)[];
  /** The certificate of the client. */
  cert?: string | Buffer;
  /** The private key of the client. */
  key?: string | Buffer;
}

/** What a stream tells. */
export interface StreamListener {
  onMessage(message: unknown): void;
  /** The stream has ended. Not called after it was closed here. */
  onEnd(why: Error): void;
}

/** How long (ms) a connection without a request stays open. */
const IDLE = 60_000;
/** undici 8 would take HTTP/2, where a watch keeps the process alive and one connection has all requests. */
const HTTP_1 = { allowH2: false };
/** An answer has the limit of its call, and a watch has none. */
const LIMITS = { ...HTTP_1, headersTimeout: 0, bodyTimeout: 0, keepAliveTimeout: IDLE };
/** Times (ms): to open, and of silence before the operating system asks whether the other side lives. */
const CONNECTION = { ...HTTP_1, timeout: 5_000, keepAlive: true, keepAliveInitialDelay: 1_000 };

/** The JSON gateway of one member, over connections that stay open. */
export class EtcdEndpoint {
  /** Why the last request failed; `undefined` after one that was answered. */
  failure: Error | undefined;
  private readonly origin: string;
  private readonly path: string;
  private readonly pool: Pool;
  private readonly streams = new Map<Client, StreamListener>();
  private readonly timeouts = new Timeouts();
  /** The connections that are being opened, which undici would leave until their time limit. */
  private readonly opening = new Set<AbortController>();

  constructor(
    readonly url: string,
    private readonly tls: EtcdTls | undefined,
  ) {
    const { origin, pathname } = new URL(url);
    this.origin = origin;
    this.path = pathname.replace(/\/$/, '');
    this.pool = new Pool(origin, { ...LIMITS, connect: this.connector(true) });
  }

  /**
   * @throws EtcdRefusal
   * @throws EtcdSilence when there is no answer within `limit` ms
   */
  post<Answer>(path: string, body: string, token: string | undefined, limit: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const exchange = new EtcdExchange(
        (text, status) => {
          timeout.leave();
          try {
            resolve(answerIn(text, status) as Answer);
          } catch (error) {
            reject(error);
          }
        },
        (error, sent) => {
          timeout.leave();
          reject(new EtcdSilence(sent, error));
        },
      );
      const expire = () => exchange.giveUp(new Error(`no answer within ${limit} ms`));
      const timeout = this.timeouts.start(limit, { expire });
      this.pool.dispatch(this.request(path, body, token), exchange);
    });
  }

  /** Opens a stream of messages, which never keeps the process alive. Returns what closes it. */
  stream(path: string, body: string, token: string | undefined, listener: StreamListener): () => void {
    const client = new Client(this.origin, { ...LIMITS, connect: this.connector(false) });
    this.streams.set(client, listener);
    const end = (why: Error) => {
      if (!this.streams.delete(client)) return;
      closeNow(client);
      listener.onEnd(why);
    };
    const lines = new Lines();
    let status = 0;
    client.dispatch(this.request(path, body, token), {
      onRequestStart: () => {},
      onResponseStart: (_, answered) => {
        status = answered;
      },
      onResponseData: (_, part) => {
        for (const line of lines.read(part)) {
          if (!this.streams.has(client)) return;
          try {
            listener.onMessage((answerIn(line, status) as { result: unknown }).result);
          } catch (error) {
            end(error as Error);
          }
        }
      },
      onResponseEnd: () => end(new EtcdSilence(true, new Error('the stream was closed'))),
      onResponseError: (_, error) => end(new EtcdSilence(true, error)),
    });
    return () => {
      this.streams.delete(client);
      closeNow(client);
    };
  }

  /** Ends all streams, because the endpoint does not answer. */
  endStreams(why: Error): void {
    for (const [client, listener] of this.streams) {
      this.streams.delete(client);
      closeNow(client);
      listener.onEnd(why);
    }
  }

  close(): void {
    for (const client of this.streams.keys()) closeNow(client);
    this.streams.clear();
    closeNow(this.pool);
    for (const opening of this.opening) opening.abort();
  }

  /**
   * `keepsAlive`: whether its connections keep the process alive. Each has a signal of its own: Node.js
   * leaves the listener of a socket on its signal when the socket is closed.
   */
  private connector(keepsAlive: boolean): buildConnector.connector {
    return (options, callback) => {
      const opening = new AbortController();
      this.opening.add(opening);
      const connect = buildConnector({ ...this.tls, ...CONNECTION, signal: opening.signal });
      connect(options, (...connected) => {
        this.opening.delete(opening);
        if (!keepsAlive) connected[1]?.unref();
        callback(...connected);
      });
    };
  }

  private request(path: string, body: string, token: string | undefined): Dispatcher.DispatchOptions {
    // By the second one, a member that has no leader refuses a request at once, and ends its streams.
    const headers = ['Content-Type', 'application/json', 'Grpc-Metadata-hasleader', 'true'];
    if (token !== undefined) headers.push('Authorization', token);
    return { method: 'POST', path: this.path + path, headers, body };
  }
}

/** One request to a member, and its answer. */
export class EtcdExchange implements Dispatcher.DispatchHandler {
  private controller: Dispatcher.DispatchController | undefined;
  private status = 0;
  private readonly parts: Buffer[] = [];
  private givenUp: Error | undefined;

  constructor(
    private readonly answered: (text: string, status: number) => void,
    /** `sent`: the server may have carried the request out. May be called again. */
    private readonly failed: (error: Error, sent: boolean) => void,
  ) {}

  /** Waits no longer, and sends nothing any more. */
  giveUp(why: Error): void {
    this.givenUp = why;
    this.controller?.abort(why);
    this.failed(why, this.controller !== undefined);
  }

  /** The request is about to be sent: there is a connection for it. */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.givenUp) controller.abort(this.givenUp);
    else this.controller = controller;
  }

  onResponseStart(_: Dispatcher.DispatchController, status: number): void {
    this.status = status;
  }

  onResponseData(_: Dispatcher.DispatchController, part: Buffer): void {
    this.parts.push(part);
  }

  onResponseEnd(): void {
    const [only] = this.parts;
    const body = this.parts.length === 1 && only ? only : Buffer.concat(this.parts);
    this.answered(body.toString(), this.status);
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.failed(error, this.controller !== undefined);
  }
}

/** gRPC codes, as the JSON gateway reports them. */
const CANCELLED = 1;
const DEADLINE_EXCEEDED = 4;
/** `INVALID_ARGUMENT`, and `UNKNOWN` for an error that has no code. */
const OF_REQUEST = new Set([2, 3]);
const UNAVAILABLE = 14;
const PERMISSION_DENIED = 7;
const UNAUTHENTICATED = 16;
/** A server that is being stopped answers `CANCELLED`, too. */
const OF_MEMBER = new Set([CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE]);

/** A server answered that it does not carry out the request. */
export class EtcdRefusal extends Error {
  override readonly name = 'EtcdRefusal';
  /** Whether an earlier send of the request may have been carried out. */
  resent = false;
  /** Whether etcd goes on refusing until somebody grants the right. */
  readonly lasts: boolean;

  constructor(
    message: string,
    readonly code: number,
  ) {
    super(message);
    this.lasts = code === PERMISSION_DENIED;
  }

  /** Whether another member may serve the request, as where a proxy finds no server. */
  get isOfMember(): boolean {
    return OF_MEMBER.has(this.code) || this.message.startsWith('HTTP 5');
  }

  /** Whether the cluster may have carried out the request all the same. */
  get isUncertain(): boolean {
    return this.isOfMember && !this.message.includes('no leader');
  }

  /**
   * Whether a new token of the same user may be accepted: etcd forgets tokens, and each change of a user or a role ends
   * those that it has signed. Its versions have several words for that.
   */
  get isOfToken(): boolean {
    return this.code === UNAUTHENTICATED || (OF_REQUEST.has(this.code) && /\bauth\b/.test(this.message));
  }
}

/** A server did not answer. */
export class EtcdSilence extends Error {
  override readonly name = 'EtcdSilence';

  constructor(
    /** Whether it may have carried out the request. */
    readonly isUncertain: boolean,
    cause: Error,
  ) {
    super(causeOf(cause), { cause });
  }
}

/** No endpoint served the request. */
export class EtcdUnavailable extends Error {
  override readonly name = 'EtcdUnavailable';
}

/** Whether the lease of the request has ended. */
export function leaseIsGone(error: unknown): error is EtcdRefusal {
  return error instanceof EtcdRefusal && error.message.includes('requested lease not found');
}

/** What every answer of a member has, in a stream inside of `result`. */
interface Headed {
  readonly header?: unknown;
}

interface AnyAnswer extends Headed {
  readonly result?: Headed;
  /** A text, or in a stream an object. */
  readonly error?: string | { readonly message?: string; readonly grpc_code?: number };
  readonly message?: string;
  readonly code?: number;
}

/** @throws EtcdRefusal */
function answerIn(text: string, status: number): unknown {
  const answer = objectIn(text);
  const error = answer?.error ?? undefined;
  if (answer && error === undefined && status === 200 && (answer.result ?? answer).header) return answer;
  const of = typeof error === 'object' ? { message: error.message, code: error.grpc_code } : answer;
  // Without a header and a code it is not the answer of a member, but that of a proxy or of something else.
  if (of?.code === undefined) throw new EtcdRefusal(`HTTP ${status}: ${text.slice(0, 200).trim()}`, 0);
  throw new EtcdRefusal(of.message ?? `HTTP ${status}`, of.code);
}

function objectIn(text: string): AnyAnswer | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Cuts a stream into lines. */
class Lines {
  private rest = '';
  private readonly decoder = new StringDecoder();

  read(part: Buffer): readonly string[] {
    const lines = (this.rest + this.decoder.write(part)).split('\n');
    this.rest = lines.pop() as string;
    return lines.filter((line) => line !== '');
  }
}

/** Ends the requests that are under way, too. */
function closeNow(dispatcher: Dispatcher): void {
  void dispatcher.destroy(new Error('The backend is closed')).catch(() => {});
}
