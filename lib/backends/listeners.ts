import { errorMonitor, type EventEmitter } from 'node:events';
import type { ModuleContext } from '../contracts/lock-backend.js';
import type { StoreContext } from '../contracts/store.js';

/** The modules that share a connection, and learn what happens to it. */
export class Listeners {
  private readonly all = new Set<StoreContext & Partial<ModuleContext>>();

  /** Returns what ends it. */
  add(module: StoreContext & Partial<ModuleContext>): () => void {
    this.all.add(module);
    return () => void this.all.delete(module);
  }

  readonly report: ModuleContext['report'] = (notice) => {
    // The stores of one module report to the same.
    for (const report of new Set(Array.from(this.all, (module) => module.report))) report(notice);
  };

  readonly connected = (): void => {
    for (const { connected } of this.all) connected?.();
  };

  readonly lost: ModuleContext['lost'] = (tickets, why, reason) => {
    if (tickets.length > 0) for (const { lost } of this.all) lost?.(tickets, why, reason);
  };
}

/**
 * Tells when a connection breaks, and when one opens while none was open: the store may have lost its data meanwhile,
 * so that whatever it granted is to be asked for at once. Connections that break in one turn are reported once.
 */
export class ConnectionWatch {
  /** The connections that are open, with what ends the watch of each. */
  private readonly open = new Map<EventEmitter, () => void>();
  private readonly ends: (() => void)[] = [];
  private turn: NodeJS.Immediate | undefined;

  constructor(private readonly changed: () => void) {}

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
    this.turn ??= setImmediate(() => {
      this.turn = undefined;
      this.changed();
    });
  };

  close(): void {
    clearImmediate(this.turn);
    for (const end of this.ends.splice(0)) end();
    for (const connection of this.open.keys()) this.forget(connection);
  }
}
