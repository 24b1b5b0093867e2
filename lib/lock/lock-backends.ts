import { Logger } from '@nestjs/common';
import type { LockBackend, Notice } from '../backends/lock-backend.js';
import { LockConfigError } from './lock-errors.js';
import type { LockOptions } from './lock-options.js';
import { NamedBackend } from './named-backend.js';

export interface LockBackendsOptions {
  readonly main: LockBackend;
  readonly backends: Readonly<Record<string, LockBackend>>;
  readonly prefix: string | undefined;
  readonly defaults: LockOptions;
  readonly commandTimeout: number;
  readonly label: string;
  readonly shutdownGrace: number;
  readonly failFast: boolean;
}

/** The backends of one module instance: the main one and those chosen by name. */
export class LockBackends {
  readonly logger = new Logger('RedisLock');
  readonly main: NamedBackend;
  private stopping = false;
  private readonly stopListeners: (() => Promise<void>)[] = [];
  private readonly named: ReadonlyMap<string, NamedBackend>;

  /** Writes what a backend has to say. */
  readonly report = ({ level, message }: Notice): void => {
    if (!this.stopping) this.logger[level](message);
  };

  constructor(readonly options: LockBackendsOptions) {
    this.main = new NamedBackend('', options.main, options, this.logger);
    this.named = new Map(
      Object.entries(options.backends).map(([name, backend]) => [
        name,
        new NamedBackend(name, backend, options, this.logger),
      ]),
    );
  }

  /** @throws LockConfigError when there is none of that name */
  get(name: string | undefined): NamedBackend {
    if (name === undefined) return this.main;
    const backend = this.named.get(name);
    if (backend) return backend;
    const known = [...this.named.keys()].map((each) => `"${each}"`).join(', ') || 'none';
    throw new LockConfigError(`Option "backend" is "${name}"; give a name of the module's "backends" (${known})`);
  }

  all(): readonly NamedBackend[] {
    return [this.main, ...this.named.values()];
  }

  /** With `failFast`, rejects when a backend cannot serve; otherwise warns of it once, without keeping the boot waiting. */
  async check(): Promise<void> {
    const checks = this.all().map(({ calls }) => calls.start(this.report));
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
      for (const result of results) if (result.status === 'rejected') this.warnUnavailable(result.reason);
    });
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

  private warnUnavailable(reason: unknown): void {
    // What was under way when the application closed says nothing of the backend.
    if (this.stopping) return;
    const why = reason instanceof Error ? reason.message : String(reason);
    this.logger.warn(`${why}. The application starts without it; locks throw LockBackendError until it is mended`);
  }
}
