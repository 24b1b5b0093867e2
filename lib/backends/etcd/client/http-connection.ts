import type { Socket } from 'node:net';
import { HttpResponse } from './http-response.js';

/** What becomes of a request. */
export interface HttpListener {
  onBody(part: Buffer, status: number): void;
  /** The answer is complete. */
  onEnd(status: number): void;
  /** There is no complete answer. `sent`: the server may have carried the request out. Not called after `onEnd`. */
  onFailure(error: Error, sent: boolean): void;
}

/** How long (ms) a connection is silent before the operating system asks whether the other side lives. */
const SILENCE = 1_000;

/**
 * A connection that carries one request of HTTP/1.1 at a time, each in one write. The HTTP client of Node.js takes
 * more processor time for a lock than all the rest of it.
 */
export class HttpConnection {
  private listener: HttpListener | undefined;
  private response: HttpResponse | undefined;
  private open = false;
  private closed = false;
  private keepsAlive = false;

  constructor(
    private readonly socket: Socket,
    /** The event by which a socket tells that it takes requests. */
    opened: 'connect' | 'secureConnect',
    private readonly onClose: () => void,
  ) {
    socket.on('connect', () => {
      socket.setNoDelay(true).setKeepAlive(true, SILENCE);
      // Each address of the host that is tried has a handle of its own.
      this.keepAlive(this.keepsAlive);
    });
    socket.on(opened, () => (this.open = true));
    socket.on('data', (part) => this.read(part));
    socket.on('end', () => this.readEnd());
    socket.on('error', (error) => this.close(error));
    socket.on('close', () => this.close(new Error('the connection was closed before the end of the answer')));
  }

  /** Whether it can take a request. */
  get idle(): boolean {
    return !this.closed && !this.listener;
  }

  /** `keepsAlive`: whether the process goes on running until there is an answer. */
  send(request: string, keepsAlive: boolean, listener: HttpListener): void {
    const response = new HttpResponse((part) => listener.onBody(part, response.status));
    this.response = response;
    this.listener = listener;
    this.keepAlive(keepsAlive);
    this.socket.write(request);
  }

  /** Ends the request that is under way with the error. */
  close(why: Error): void {
    if (this.closed) return;
    this.closed = true;
    this.socket.destroy();
    this.onClose();
    const { listener } = this;
    this.listener = undefined;
    listener?.onFailure(why, this.open);
  }

  private read(part: Buffer): void {
    const { response } = this;
    if (!response) return this.close(new Error('an answer to no request'));
    try {
      response.read(part);
    } catch (error) {
      return this.close(error as Error);
    }
    if (response.complete) this.finish(response);
  }

  private readEnd(): void {
    const { response } = this;
    response?.end();
    if (response?.complete) this.finish(response);
    this.close(new Error('the connection was closed before the end of the answer'));
  }

  private finish({ keepsOpen, status }: HttpResponse): void {
    const { listener } = this;
    this.listener = undefined;
    this.response = undefined;
    this.keepAlive(false);
    if (!keepsOpen) this.close(new Error('the server keeps no connections'));
    listener?.onEnd(status);
  }

  private keepAlive(keepsAlive: boolean): void {
    this.keepsAlive = keepsAlive;
    if (keepsAlive) this.socket.ref();
    else this.socket.unref();
  }
}
