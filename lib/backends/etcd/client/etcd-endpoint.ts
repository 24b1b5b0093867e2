import { connect as connectTcp, isIP } from 'node:net';
import { StringDecoder } from 'node:string_decoder';
import { connect as connectTls } from 'node:tls';
import { Timeouts } from '../../../timing/timeouts.js';
import { EtcdRefusal, EtcdSilence } from './etcd-failures.js';
import { HttpConnection } from './http-connection.js';

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

/** How many connections without a request stay open. */
const MOST_IDLE = 256;

/** The JSON gateway of one member, over connections that stay open. */
export class EtcdEndpoint {
  /** Why the last request failed; `undefined` after one that was answered. */
  failure: Error | undefined;
  private readonly path: string;
  private readonly headers: string;
  private readonly connect: (closed: () => void) => HttpConnection;
  private readonly connections = new Set<HttpConnection>();
  /** Those without a request, that which was used last at the end. */
  private readonly idle: HttpConnection[] = [];
  private readonly streams = new Map<HttpConnection, StreamListener>();
  private readonly timeouts = new Timeouts();

  constructor(
    readonly url: string,
    tls: EtcdTls | undefined,
  ) {
    const { protocol, host: authority, hostname, port, pathname } = new URL(url);
    this.path = pathname.replace(/\/$/, '');
    // By the last one, a member that has no leader refuses a request at once, and ends its streams.
    this.headers = `Host: ${authority}\r\nContent-Type: application/json\r\nGrpc-Metadata-hasleader: true\r\n`;
    const host = hostname.replace(/^\[|\]$/g, '');
    if (protocol === 'https:') {
      const servername = isIP(host) ? '' : host;
      const options = { host, port: Number(port || 443), servername, ALPNProtocols: ['http/1.1'], ...tls };
      this.connect = (closed) => new HttpConnection(connectTls(options), 'secureConnect', closed);
    } else {
      const options = { host, port: Number(port || 80) };
      this.connect = (closed) => new HttpConnection(connectTcp(options), 'connect', closed);
    }
  }

  /**
   * @throws EtcdRefusal
   * @throws EtcdSilence when there is no answer within `limit` ms
   */
  post<Answer>(path: string, body: string, token: string | undefined, limit: number): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const connection = this.idle.pop() ?? this.newConnection();
      const parts: Buffer[] = [];
      const timeout = this.timeouts.start(limit, {
        expire: () => connection.close(new Error(`no answer within ${limit} ms`)),
      });
      connection.send(this.request(path, body, token), true, {
        onBody: (part) => parts.push(part),
        onEnd: (status) => {
          timeout.leave();
          this.release(connection);
          const [only] = parts;
          const text = (parts.length === 1 && only ? only : Buffer.concat(parts)).toString();
          try {
            resolve(answerIn(text, status) as Answer);
          } catch (error) {
            reject(error);
          }
        },
        onFailure: (error, sent) => {
          timeout.leave();
          reject(new EtcdSilence(sent, error));
        },
      });
    });
  }

  /** Opens a stream of messages, which never keeps the process alive. Returns what closes it. */
  stream(path: string, body: string, token: string | undefined, listener: StreamListener): () => void {
    const connection = this.newConnection();
    this.streams.set(connection, listener);
    const end = (why: Error) => {
      if (!this.streams.delete(connection)) return;
      connection.close(why);
      listener.onEnd(why);
    };
    const lines = new Lines();
    connection.send(this.request(path, body, token), false, {
      onBody: (part, status) => {
        for (const line of lines.read(part)) {
          if (!this.streams.has(connection)) return;
          try {
            listener.onMessage((answerIn(line, status) as { result: unknown }).result);
          } catch (error) {
            end(error as Error);
          }
        }
      },
      onEnd: () => end(new EtcdSilence(true, new Error('the stream was closed'))),
      onFailure: (error) => end(new EtcdSilence(true, error)),
    });
    return () => {
      this.streams.delete(connection);
      connection.close(new Error('the stream was closed'));
    };
  }

  /** Ends all streams, because the endpoint does not answer. */
  endStreams(why: Error): void {
    for (const [connection, listener] of this.streams) {
      this.streams.delete(connection);
      connection.close(why);
      listener.onEnd(why);
    }
  }

  close(): void {
    this.streams.clear();
    for (const connection of this.connections) connection.close(new Error('The backend is closed'));
  }

  private newConnection(): HttpConnection {
    const connection = this.connect(() => {
      this.connections.delete(connection);
      const place = this.idle.indexOf(connection);
      if (place >= 0) this.idle.splice(place, 1);
    });
    this.connections.add(connection);
    return connection;
  }

  private release(connection: HttpConnection): void {
    if (this.idle.length >= MOST_IDLE) connection.close(new Error('there are enough idle connections'));
    else if (connection.idle) this.idle.push(connection);
  }

  private request(path: string, body: string, token: string | undefined): string {
    const login = token === undefined ? '' : `Authorization: ${token}\r\n`;
    const length = Buffer.byteLength(body);
    return `POST ${this.path}${path} HTTP/1.1\r\n${this.headers}${login}Content-Length: ${length}\r\n\r\n${body}`;
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
