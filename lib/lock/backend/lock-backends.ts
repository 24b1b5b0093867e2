import { Logger } from '@nestjs/common';
import type { LockBackend, Notice } from '../../contracts/lock-backend.js';
import { LockConfigError } from '../../errors/lock-errors.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { QueueingBackend } from '../waiting/queueing-backend.js';

export interface LockBackendsOptions {
  readonly main: LockBackend;
  readonly backends: Readonly<Record<string, LockBackend>>;
  readonly prefix: string | undefined;
  /** The lock options of a call that gives none. */
  readonly defaults: ResolvedLockOptions;
  readonly commandTimeout: number;
  readonly label: string;
  readonly shutdownGrace: number;
  readonly failFast: boolean;
}

/** The backends of one module instance: the main one and those chosen by name. */
export class LockBackends {
  readonly logger = new Logger('RedisLock');
  readonly main: QueueingBackend;
  private stopping = false;
  private readonly startListeners: (() => Promise<void>)[] = [];
  private readonly stopListeners: (() => Promise<void>)[] = [];
  private readonly named: ReadonlyMap<string, QueueingBackend>;

  /** Writes what a backend has to say. */
  readonly report = ({ level, message }: Notice): void => {
    if (!this.stopping) this.logger[level](message);
  };

  constructor(readonly options: LockBackendsOptions) {
    this.main = new QueueingBackend('', options.main, options, this.logger);
    this.named = new Map(
      Object.entries(options.backends).map(([name, backend]) => [
        name,
        new QueueingBackend(name, backend, options, this.logger),
      ]),
    );
  }

  /** @throws LockConfigError when there is none of that name */
  get(name: string | undefined): QueueingBackend {
    if (name === undefined) return this.main;
    const backend = this.named.get(name);
    if (backend) return backend;
    const known = [...this.named.keys()].map((each) => `"${each}"`).join(', ') || 'none';
    throw new LockConfigError(`Option "backend" is "${name}"; give a name of the module's "backends" (${known})`);
  }

  all(): readonly QueueingBackend[] {
    return [this.main, ...this.named.values()];
  }

  /**
   * With `failFast`, rejects when a backend cannot serve; otherwise warns of it once, without keeping the boot waiting.
   */
  async check(): Promise<void> {
    for (const backend of this.all()) backend.use();
    const locks = this.all().map(({ calls }) => calls.start(this.report));
    const checks = [...locks, ...this.startListeners.map((listener) => listener())];
    if (this.options.failFast) {
      try {
        await Promise.all(checks);
      } catch (error) {
        await this.stop();
        throw error;
      }
      return;
    }
    void Promise.allSettled(checks).then((results) => {
      for (const [index, result] of results.entries()) {
        if (result.status === 'rejected') this.warnUnavailable(result.reason, index < locks.length);
      }
    });
  }

  /** For what else needs a server: called at start-up; rejects as the start of a backend does. */
  whenStarting(listener: () => Promise<void>): void {
    this.startListeners.push(listener);
  }

  /** For what uses a backend, too: called when all locks are given back, before the connections are closed. */
  whenStopping(listener: () => Promise<void>): void {
    this.stopListeners.push(listener);
  }

  async stop(): Promise<void> {
    this.stopping = true;
    await Promise.all(this.stopListeners.map((listener) => listener()));
    await Promise.all(this.all().map((backend) => backend.stop()));
  }

  private warnUnavailable(reason: unknown, locks: boolean): void {
    // What was under way when the application closed says nothing of the backend.
    if (this.stopping) return;
    const why = reason instanceof Error ? reason.message : String(reason);
    const then = locks ? 'locks throw LockBackendError' : 'the cache loads every value';
    this.logger.warn(`${why}. The application starts without it; until that is mended, ${then}`);
  }
}
