import { EventEmitter } from 'node:events';

/** The parts of net.Socket that ioredis and this library use, without a connection behind them. */
export class SocketStandIn extends EventEmitter {
  readonly remotePort = 6379;
  connecting = false;
  destroyed = false;
  writable = true;

  constructor(readonly remoteAddress: string) {
    super();
  }

  /** No time passes for it. */
  setTimeout(_ms: number, _callback: () => void): this {
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  resume(): this {
    return this;
  }

  pause(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}
