import http from 'node:http';
import https from 'node:https';
import { onceRead } from '../../../timing/once-read.js';
import { EtcdRefusal, EtcdSilence } from './etcd-failures.js';

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

/** A member that has no leader refuses a request with this header at once, and ends its streams. */
const NEEDS_LEADER = { 'Grpc-Metadata-hasleader': 'true' };

/** The JSON gateway of one member, over connections that stay open. */
export class EtcdEndpoint {
  /** Why the last request failed; `undefined` after one that was answered. */
  failure: Error | undefined;
  private readonly agent: http.Agent;
  private readonly options: http.RequestOptions;
  private readonly send: typeof http.request;
  private readonly streams = new Map<http.ClientRequest, StreamListener>();

  constructor(
    readonly url: string,
    tls: EtcdTls | undefined,
  ) {
    const { protocol, hostname, port, pathname } = new URL(url);
    const secure = protocol === 'https:';
    const settings = { keepAlive: true, noDelay: true };
    this.send = secure ? https.request : http.request;
    this.agent = secure ? new https.Agent({ ...settings, ...tls }) : new http.Agent(settings);
    this.options = {
      host: hostname.replace(/^\[|\]$/g, ''),
      port: port || (secure ? 443 : 80),
      path: pathname.replace(/\/$/, ''),
      agent: this.agent,
    };
  }

  /**
   * @throws EtcdRefusal
   * @throws EtcdSilence when there is no answer within `limit` ms
   */
  post<Answer>(path: string, body: string, token: string | undefined, limit: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const request = this.open(path, body, token);
      let connected = false;
      const fail = (error: Error) => {
        clearTimeout(timer);
        reject(new EtcdSilence(connected, error));
      };
      const giveUp = () => {
        const error = new Error(`no answer within ${limit} ms`);
        // A request whose response has begun may report no error when it is destroyed.
        fail(error);
        request.destroy(error);
      };
      const timer = setTimeout(() => onceRead(giveUp), limit).unref();
      request.on('socket', (socket) => {
        if (!socket.connecting) connected = true;
        else socket.once('connect', () => (connected = true));
      });
      request.on('error', fail);
      request.on('response', (response) => {
        response.on('close', () => {
          if (!response.complete) fail(new Error('the connection was closed in the middle of the answer'));
        });
        readAll(response, (text) => {
          clearTimeout(timer);
          try {
            resolve(answerIn(text, response.statusCode) as Answer);
          } catch (error) {
            reject(error);
          }
        });
      });
      request.end(body);
    });
  }

  /** Opens a stream of messages, which never keeps the process alive. Returns what closes it. */
  stream(path: string, body: string, token: string | undefined, listener: StreamListener): () => void {
    const request = this.open(path, body, token);
    this.streams.set(request, listener);
    const end = (why: Error) => {
      if (!this.streams.delete(request)) return;
      request.destroy();
      listener.onEnd(why);
    };
    request.on('socket', (socket) => socket.unref());
    request.on('error', (error) => end(new EtcdSilence(true, error)));
    request.on('response', (response) => {
      readLines(response, (line) => {
        if (!this.streams.has(request)) return;
        try {
          listener.onMessage((answerIn(line, response.statusCode) as { result: unknown }).result);
        } catch (error) {
          end(error as Error);
        }
      });
      response.on('close', () => end(new EtcdSilence(true, new Error('the stream was closed'))));
    });
    request.end(body);
    return () => {
      this.streams.delete(request);
      request.destroy();
    };
  }

  /** Ends all streams, because the endpoint does not answer. */
  endStreams(why: Error): void {
    for (const [request, listener] of this.streams) {
      this.streams.delete(request);
      request.destroy();
      listener.onEnd(why);
    }
  }

  close(): void {
    for (const request of this.streams.keys()) request.destroy();
    this.streams.clear();
    this.agent.destroy();
  }

  private open(path: string, body: string, token: string | undefined): http.ClientRequest {
    const headers: http.OutgoingHttpHeaders = {
      'Content-Type': 'application/json',
      'Content-Length': Buffer.byteLength(body),
      ...NEEDS_LEADER,
    };
    if (token !== undefined) headers['Authorization'] = token;
    return this.send({ ...this.options, method: 'POST', path: `${this.options.path}${path}`, headers });
  }
}

function readAll(response: http.IncomingMessage, done: (text: string) => void): void {
  let text = '';
  response.setEncoding('utf8');
  response.on('data', (chunk: string) => (text += chunk));
  response.on('end', () => done(text));
}

function readLines(response: http.IncomingMessage, onLine: (line: string) => void): void {
  let rest = '';
  response.setEncoding('utf8');
  response.on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop() as string;
    for (const line of lines) if (line) onLine(line);
  });
}

interface ErrorAnswer {
  /** A text, or in a stream an object. */
  readonly error?: string | { readonly message?: string; readonly grpc_code?: number };
  readonly message?: string;
  readonly code?: number;
}

/** @throws EtcdRefusal */
function answerIn(text: string, status: number | undefined): unknown {
  let answer: ErrorAnswer;
  try {
    answer = JSON.parse(text) as ErrorAnswer;
  } catch {
    throw new EtcdRefusal(`HTTP ${status}: ${text.slice(0, 200).trim()}`, 0);
  }
  const { error } = answer;
  if (error === undefined && status === 200) return answer;
  const of = typeof error === 'object' ? { message: error.message, code: error.grpc_code } : answer;
  throw new EtcdRefusal(of.message ?? `HTTP ${status}`, of.code ?? 0);
}
