import { CacheConfigError } from '../errors/cache-errors.js';
import { messageOf, textOf } from '../errors/limited-log.js';
import { LockConfigError } from '../errors/lock-errors.js';
import { PrimitiveConfigError } from '../errors/primitive-errors.js';
import { LONGEST_DELAY } from '../timing/clock.js';
import { parseDuration } from './checks.js';
import { isPlain } from './option-table.js';

/**
 * The longest duration (ms) of an option that starts no timer: about 285,000 years, within what `PX` of Redis takes.
 */
const LONGEST_DURATION = Number.MAX_SAFE_INTEGER;

/** What an object of options is: plain, an instance of a class, or a namespace of a module. */
const HOLDS_OPTIONS: ReadonlySet<string> = new Set(['[object Object]', '[object Module]']);

/** Checks the values of options. Each error names the option, the value received and the remedy. */
export class OptionChecks {
  constructor(private readonly ConfigError: new (message: string) => Error) {}

  /**
   * The error for an option that cannot take the value. `remedy` says what to give; the message puts "give" before it.
   */
  refused(option: string, value: unknown, remedy: string): Error {
    const shown = typeof value === 'string' ? `"${value}"` : textOf(value);
    return new this.ConfigError(`Option "${option}" is ${withoutPassword(shown)}; give ${remedy}`);
  }

  /** As `refused`, for the address of a server, which may contain a password. */
  refusedConnection(option: string, given: unknown, remedy: string): Error {
    return this.conflict(`Option "${option}" is ${shownConnection(given)}; give ${remedy}`);
  }

  /** Refuses a URL of which a part of the password would be taken for something else, and shown. */
  requireWholePassword(option: string, url: unknown): void {
    if (typeof url !== 'string' || !isCutInPassword(url)) return;
    throw this.conflict(`Option "${option}" is ${CUT_IN_PASSWORD}; give ${ENCODE_PASSWORD}`);
  }

  /** What a function of the application has decided. A promise would count as yes, whatever it resolves to. */
  decision(option: string, answer: unknown): boolean {
    if (!isThenable(unawaited(answer))) return Boolean(answer);
    throw this.conflict(
      `Option "${option}" returned a promise; give a function that answers at once, with true or false`,
    );
  }

  unknown(kind: string, option: string, known: readonly string[]): Error {
    return new this.ConfigError(`Unknown ${kind} "${option}"; give any of ${known.join(', ')}`);
  }

  /** The error for options that are valid alone but not together. */
  conflict(message: string): Error {
    return new this.ConfigError(message);
  }

  require(valid: boolean, option: string, value: unknown, remedy: string): void {
    if (!valid) throw this.refused(option, value, remedy);
  }

  object(option: string, value: unknown, remedy: string): object {
    if (Array.isArray(value)) throw this.conflict(`Option "${option}" is a list; give ${remedy}`);
    // A date, a promise, a signal or a collection has no options: its content would be passed over.
    if (!HOLDS_OPTIONS.has(Object.prototype.toString.call(value))) throw this.refused(option, value, remedy);
    return value as object;
  }

  /** Refuses an option that the method would ignore. */
  only(method: string, options: object, known: readonly string[]): void {
    const given = Object.entries(this.object('options', options, `an object of options of ${method}(), or none`));
    for (const [name, value] of given) {
      if (!known.includes(name) && value !== undefined) throw this.unknown(`option of ${method}()`, name, known);
    }
  }

  /** The option `backend` of a method that has no other option. */
  backendOf(method: string, options: object): string | undefined {
    this.only(method, options, ['backend']);
    const { backend } = options as { readonly backend?: unknown };
    if (backend === undefined || typeof backend === 'string') return backend;
    throw this.refused('backend', backend, 'the name of a backend');
  }

  /**
   * Refuses options of a connection that the client library does not know, and an address that it cannot take: it
   * would connect to its default server, or fail where no call of the application waits. Values may be secret.
   */
  connection(option: string, given: object, known: readonly string[]): void {
    const options = Object.entries(given);
    if (options.length === 0 && !isPlain(given)) {
      throw this.conflict(
        `Option "${option}" is an instance of ${given.constructor.name}; give plain options or a URL`,
      );
    }
    for (const [name, value] of options) {
      if (value !== undefined && !known.includes(name)) throw this.unknown('option', `${option}.${name}`, known);
    }
    const values = given as Readonly<Record<string, unknown>>;
    const refuseUnless = (valid: (value: unknown) => boolean, name: string, shown: unknown, remedy: string) => {
      const value = values[name] ?? undefined;
      this.require(value === undefined || valid(value), `${option}.${name}`, shown, remedy);
    };
    const isHost = (host: unknown) => typeof host === 'string' && !/:\/\/|@/.test(host);
    if (!isHost(values['host'] ?? '')) {
      throw this.refusedConnection(`${option}.host`, values['host'], 'a host name, an address or a path');
    }
    const isPort = (port: unknown) => Number.isInteger(Number(port)) && Number(port) > 0 && Number(port) < 65_536;
    refuseUnless(isPort, 'port', values['port'], 'a number from 1 to 65535');
    for (const name of ['connectionString', 'uri', 'user', 'database', 'socketPath']) {
      refuseUnless((value) => typeof value === 'string', name, typeof values[name], 'a text');
      this.requireWholePassword(`${option}.${name}`, values[name]);
    }
  }

  /**
   * What the client library makes of a connection. Values may be secret.
   *
   * @throws the ConfigError for what it cannot read, where no call of the application would wait for the failure
   */
  readBy<T>(option: string, client: () => T): T {
    try {
      return client();
    } catch (error) {
      throw this.conflict(
        `Option "${option}" cannot be read: ${messageOf(error)}; correct it (in a URL, write % and other special characters percent-encoded)`,
      );
    }
  }

  /** Whole milliseconds, rounded up. */
  milliseconds(option: string, value: unknown, least: number, most = LONGEST_DURATION): number {
    const given = parseDuration(value);
    if (given !== undefined && given >= least && given <= most) return Math.ceil(given);
    const limit = most === LONGEST_DURATION ? `${least} or more` : `from ${least} to ${most}`;
    const remedy = `milliseconds (${limit}) or a duration such as '500ms', '30s', '5m', '2h' or '1d'`;
    throw this.refused(option, value, remedy);
  }

  /** Whole milliseconds that a timer can wait for. */
  timerMilliseconds(option: string, value: unknown, least: number): number {
    return this.milliseconds(option, value, least, LONGEST_DELAY);
  }

  /** Whole milliseconds, or `Infinity`. Such an option has no default: values must not expire, or stay, by surprise. */
  endlessMilliseconds(option: string, value: unknown): number {
    if (value === Infinity) return Infinity;
    if (value === undefined) {
      throw this.refused(option, value, "how long it lives, such as '1d', or Infinity for what never ends by itself");
    }
    return this.milliseconds(option, value, 1);
  }
}

/** Whether `await` would wait for it. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/**
 * What a function of the application's has answered that must answer at once. A promise is refused by what needs the
 * value; nobody waits for it, and its rejection must not end the process.
 */
export function unawaited<T>(answer: T): T {
  if (isThenable(answer)) answer.then(undefined, () => {});
  else if (Array.isArray(answer)) answer.forEach(unawaited);
  return answer;
}

/** Hides what stands before the host of a URL, and a password among its parameters. */
function withoutPassword(shown: string): string {
  return shown.replaceAll(/\/\/\S*@/g, '//...@').replaceAll(/([?&]password=)[^&\s"]*/gi, '$1...');
}

export const lockOption = new OptionChecks(LockConfigError);
export const cacheOption = new OptionChecks(CacheConfigError);
export const primitiveOption = new OptionChecks(PrimitiveConfigError);

/**
 * What messages show of a text that is refused as the address of a server. A password may stand anywhere in it, as in
 * `redis:/:password@host`: nothing is shown but a scheme, and hosts with their ports.
 */
export function shownConnection(given: unknown): string {
  if (Array.isArray(given)) return `[${given.map(shownConnection).join(', ')}]`;
  if (typeof given !== 'string') return textOf(given);
  if (given.split(',').every((each) => each === '' || /^[a-z0-9.-]+:\d{1,5}$/i.test(each))) return `"${given}"`;
  const [scheme = ''] = /^[a-z][a-z+]{0,15}:\/\//i.exec(given) ?? [];
  return `"${scheme}..."`;
}

/** Whether a URL has an "@" behind its host: the first "/", "?" or "#" of its password has ended that. */
export function isCutInPassword(url: string): boolean {
  return /^[^:]+:\/\/[^/?#]*(?:\/[^?#]*@|\/?[^?#/]*\?[^=#]*@|[^#]*#.*@)/.test(url);
}

export const CUT_IN_PASSWORD = 'a URL with "@" behind its host';
export const ENCODE_PASSWORD = 'one whose password has its special characters percent-encoded, as "/" by %2F';

/** What makes the options of `forRootAsync` of a module. @throws LockConfigError unless it is exactly one thing */
export function requireSource(options: unknown): void {
  const { useFactory, useClass, useExisting } = lockOption.object(
    'options',
    options,
    'an object with useFactory, useClass or useExisting',
  ) as Readonly<Record<string, unknown>>;
  const given = Object.entries({ useFactory, useClass, useExisting }).filter(([, source]) => source !== undefined);
  const names = given.map(([name]) => `"${name}"`).join(' and ') || 'none is';
  if (given.length !== 1)
    throw lockOption.conflict(`Options "useFactory", "useClass" and "useExisting": ${names} set; give exactly one`);
  const [[name, source] = ['', undefined]] = given;
  if (name !== 'useExisting') lockOption.require(typeof source === 'function', name, source, 'a function or a class');
}
