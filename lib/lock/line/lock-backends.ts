import { Logger } from '@nestjs/common';
import type { LockBackend } from '../../contracts/lock-backend.js';
import type { Notice } from '../../contracts/store.js';
import { LimitedLog, messageOf } from '../../errors/limited-log.js';
import { LockConfigError } from '../../errors/lock-errors.js';
import { quoted } from '../../keys/key-part.js';
import type { ResolvedLockOptions } from '../options/lock-options.js';
import { QueueingBackend } from './named-backend.js';

interface LockBackendsOptions {
  readonly main: LockBackend;
  readonly backends: Readonly<Record<string, LockBackend>>;
  readonly prefix: string | undefined;
  /** As in the options of the module. */
  readonly application: string | undefined;
  /** The lock options of a call that gives none. */
  readonly defaults: ResolvedLockOptions;
  readonly commandTimeout: number;
  readonly label: string;
  readonly shutdownGrace: number;
  readonly failFast: boolean;
  readonly alone?: boolean | undefined;
}

/** Calls that wait for checks at the start. */
interface Checked {
  readonly checks: { due: (() => void) | undefined };
}

/** The backends of one module instance: the main one and those chosen by name. */
export class LockBackends {
  readonly logger = new LimitedLog(new Logger('RedisLock'));
  readonly main: QueueingBackend;
  private readonly stopper = new AbortController();
  /** Aborts when the module begins to stop. */
  readonly stopped: AbortSignal = this.stopper.signal;
  private readonly startListeners: (() => Promise<void>)[] = [];
  private readonly drainListeners: (() => Promise<void>)[] = [];
  private readonly works: (() => readonly object[])[] = [];
  private readonly stopListeners: (() => Promise<void>)[] = [];
  private readonly named: ReadonlyMap<string, QueueingBackend>;
  private checks: Promise<void>[] | undefined;

  /** Logs the notice of a backend. */
  readonly report = ({ level, message }: Notice): void => {
    if (!this.stopped.aborted) this.logger[level](message);
  };

  constructor(readonly options: LockBackendsOptions) {
    const { report } = this;
    const open = (name: string, backend: LockBackend) =>
      new QueueingBackend(name, backend, { ...options, report }, this.logger);
    this.main = open('', options.main);
    this.named = new Map(Object.entries(options.backends).map(([name, backend]) => [name, open(name, backend)]));
  }

  /** @throws LockConfigError when there is none of that name */
  get(name: string | undefined): QueueingBackend {
    if (name === undefined) return this.main;
    const backend = this.named.get(name);
    if (backend) return backend;
    throw this.unknown(name);
  }

  /** The backend of a call that names this one; of a call that names none, that of the module's `defaults`. */
  ofCall(name: string | undefined): QueueingBackend {
    return this.get(name ?? this.options.defaults.backend);
  }

  /** Whether no other process can see what this one stores. */
  get isInMemory(): boolean {
    return [this.main, ...this.named.values()].every(({ calls }) => calls.backend.name === 'memory');
  }

  /** Why `what` would not tell the application from others at its store; `undefined` where it would. */
  lackOfApplication(what: string): string | undefined {
    const { application, prefix } = this.options;
    if (application !== undefined || prefix !== undefined || this.isInMemory) return undefined;
    return (
      `${what} needs the name of the application, which other applications at the same store do not have, and there is ` +
      'no package.json with a name beside its main file or in the working directory; give RedisLockModule the option "application"'
    );
  }

  has(name: string): boolean {
    return this.named.has(name);
  }

  /** The error for a name that no backend has. */
  unknown(name: string): LockConfigError {
    return unknownBackend('backend', name, [...this.named.keys()]);
  }

  all(): readonly QueueingBackend[] {
    return [this.main, ...this.named.values()];
  }

  /**
   * With `failFast`, rejects when a backend cannot serve; otherwise warns of it once, without delaying the start.
   */
  async check(): Promise<void> {
    const checks = this.beginChecks();
    if (this.options.failFast) {
      try {
        await Promise.all(checks);
      } catch (error) {
        await this.stop().catch((failure: unknown) => this.logger.warn(messageOf(failure)));
        throw error;
      }
      return;
    }
    void Promise.allSettled(checks).then((results) => {
      for (const [index, result] of results.entries()) {
        if (result.status === 'rejected') this.warnUnavailable(result.reason, index < this.all().length);
      }
    });
  }

  /**
   * Adds a check for the start-up of what else needs a server, for which its `calls` wait; it rejects when that server
   * cannot serve.
   */
  whenStarting(calls: Checked, listener: () => Promise<void>): void {
    this.startListeners.push(listener);
    if (this.checks) this.checks.push(handled(listener()));
    else calls.checks.due = () => this.beginChecks();
  }

  /** Has the checks begin with the first call, where that comes before the start: in the factory of a provider. */
  checkEarly(): this {
    for (const { calls } of this.all()) calls.checks.due = () => this.beginChecks();
    return this;
  }

  /** Adds a step for the shutdown: it runs while holders finish, for up to `shutdownGrace` ms. */
  whenDraining(listener: () => Promise<void>): void {
    this.drainListeners.push(listener);
  }

  /** Adds to the locks whose work the running code may be, though it is in none of their scopes. */
  whenAround(locks: () => readonly object[]): void {
    this.works.push(locks);
  }

  /** The locks whose work the running code is: a shutdown that it asks for must not wait for them. */
  locksAround(): readonly object[] {
    return this.works.flatMap((locks) => locks());
  }

  /** Settles when all that `whenDraining` added has ended. */
  async drain(): Promise<void> {
    await Promise.all(this.drainListeners.map((listener) => listener()));
  }

  /** Adds a step for the shutdown: it runs after all locks are released and before the connections close. */
  whenStopping(listener: () => Promise<void>): void {
    this.stopListeners.push(listener);
  }

  /** Stops all of it, whatever of it fails to; rejects then with the first failure. */
  async stop(): Promise<void> {
    this.stopper.abort();
    const outcomes = await Promise.allSettled(this.stopListeners.map((listener) => listener()));
    outcomes.push(...(await Promise.allSettled(this.all().map((backend) => backend.stop()))));
    this.logger.flush();
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }

  private beginChecks(): readonly Promise<void>[] {
    if (this.checks) return this.checks;
    this.checks = [];
    const all = this.all();
    for (const backend of all) backend.use();
    this.checks.push(...all.map(({ calls }) => handled(calls.start())));
    this.checks.push(...this.startListeners.map((listener) => handled(listener())));
    return this.checks;
  }

  private warnUnavailable(reason: unknown, locks: boolean): void {
    // What was under way when the application closed says nothing of the backend.
    if (this.stopped.aborted) return;
    const why = messageOf(reason);
    const then = locks ? 'locks throw LockBackendError' : 'the cache loads every value';
    this.logger.warn(`${why}. The application starts without it; until that is mended, ${then}`);
  }
}

/** The check, whose rejection may be read later, when the application starts. */
function handled(check: Promise<void>): Promise<void> {
  check.catch(() => {});
  return check;
}

/** The error for an option that names a backend which is none of the known ones. */
export function unknownBackend(option: string, name: string, known: readonly string[]): LockConfigError {
  const shown = quoted(known) || 'none';
  return new LockConfigError(`Option "${option}" is "${name}"; give a name of the module's "backends" (${shown})`);
}
