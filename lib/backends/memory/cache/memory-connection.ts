import type { CacheListener } from '../../../contracts/cache-store.js';

/**
 * Imitates the connection to a server: answers calls and delivers messages asynchronously and in order, until it is
 * closed.
 */
export class MemoryConnection {
  private readonly listeners: CacheListener[] = [];
  private closed = false;

  async run<T>(step: () => T | Promise<T>): Promise<T> {
    if (this.closed) throw new Error('The cache store in memory is closed: the application has ended');
    return step();
  }

  listen(listener: CacheListener): void {
    this.listeners.push(listener);
    this.deliver(() => listener.onConnected());
  }

  tell(message: (listener: CacheListener) => void): void {
    for (const listener of this.listeners) this.deliver(() => message(listener));
  }

  close(): void {
    this.closed = true;
  }

  /** Uses a promise, because the fake timers of test runners replace `queueMicrotask`. */
  private deliver(message: () => void): void {
    void Promise.resolve().then(() => {
      if (!this.closed) message();
    });
  }
}
