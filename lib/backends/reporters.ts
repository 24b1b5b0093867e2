import { errorMonitor, type EventEmitter } from 'node:events';
import type { Notice, StartRequest } from '../contracts/store.js';
import { listenToAbort } from '../timing/abort-listeners.js';

/** The modules that share a connection, and want to know what happens to it. */
export class Reporters {
  private readonly reporters = new Set<StartRequest['report']>();

  readonly report = (notice: Notice): void => {
    for (const report of this.reporters) report(notice);
  };

  /** Adds the module's reporter until the module stops. */
  add({ report, stopped }: StartRequest): void {
    if (stopped?.aborted) return;
    this.reporters.add(report);
    if (stopped) listenToAbort(stopped, () => this.reporters.delete(report));
  }

  get count(): number {
    return this.reporters.size;
  }
}

/**
 * Tells when a connection breaks, and when one opens while none was open: the store may have lost its data meanwhile,
 * so that whatever it granted is to be asked for at once. Connections that break in one turn are reported once.
 */
export class ConnectionWatch {
  private readonly listeners = new Set<() => void>();
  /** The connections that are open, with what ends the watch of each. */
  private readonly open = new Map<EventEmitter, () => void>();
  private readonly ends: (() => void)[] = [];
  private turn: NodeJS.Immediate | undefined;

  whenConnected(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Watches the connections of a pool, which emits `opened` with each new one. */
  watch(pool: EventEmitter, opened: 'connect' | 'connection'): void {
    const see = (connection: EventEmitter) => this.see(connection);
    pool.on(opened, see);
    pool.on(errorMonitor, this.tell);
    this.ends.push(() => pool.off(opened, see).off(errorMonitor, this.tell));
  }

  /** Watches a connection; does nothing if it knows it. */
  see(connection: EventEmitter): void {
    if (this.open.has(connection)) return;
    if (this.open.size === 0) this.tell();
    // mysql2 does not tell of the end of a connection that is destroyed.
    const { stream } = connection as { stream?: EventEmitter };
    const [closing, event] = stream ? [stream, 'close'] : [connection, 'end'];
    // Neither counts as a listener of the errors: without one of the application's, they still end the process.
    const forget = () => this.forget(connection);
    const broken = () => {
      forget();
      this.tell();
    };
    closing.on(event, forget);
    connection.on(errorMonitor, broken);
    this.open.set(connection, () => {
      closing.off(event, forget);
      connection.off(errorMonitor, broken);
    });
  }

  /** Tells nothing of the end of a connection that is closed on this side. */
  forget(connection: EventEmitter): void {
    this.open.get(connection)?.();
    this.open.delete(connection);
  }

  readonly tell = (): void => {
    if (this.listeners.size === 0) return;
    this.turn ??= setImmediate(() => {
      this.turn = undefined;
      for (const listener of this.listeners) listener();
    });
  };

  close(): void {
    this.listeners.clear();
    for (const end of this.ends.splice(0)) end();
    for (const connection of this.open.keys()) this.forget(connection);
  }
}
