import { eventChannel, type EventChannels } from './event-channel.js';
import type { LockSource } from './lock-channels.js';

/** An event of one idempotency key. */
export interface IdempotencyEvent extends LockSource {
  readonly key: string;
  /** The key template of the decorator, or `Class.method` if it has a function; `undefined` without a decorator. */
  readonly template: string | undefined;
}

/** The method ran, and its result is kept. */
export interface IdempotencyRan extends IdempotencyEvent {
  /** How many attempts with this key have begun, with this one. */
  readonly attempt: number;
  /** Milliseconds from the begin of the attempt until its result was kept. */
  readonly took: number;
}

/** The method threw, or its result was not kept. */
export interface IdempotencyFailed extends IdempotencyRan {
  readonly error: unknown;
}

/** A call got the kept result of an earlier one: a value or an error. */
export interface IdempotencyRepeated extends IdempotencyEvent {
  /** How many attempts it took to get this result. */
  readonly attempt: number;
}

/** The key belongs to a request with another fingerprint: the call was refused. */
export interface IdempotencyConflict extends IdempotencyEvent {}

/** Another call with the key still runs: the call was refused. */
export interface IdempotencyBusy extends IdempotencyEvent {
  /** Milliseconds that the call waited for the other one. */
  readonly waited: number;
}

/** The backend failed before an attempt began: the method did not run. */
export interface IdempotencyUnavailable extends IdempotencyEvent {
  readonly error: unknown;
}

/** The events of idempotent methods, by name. */
export interface IdempotencyEventTypes {
  ran: IdempotencyRan;
  failed: IdempotencyFailed;
  repeated: IdempotencyRepeated;
  conflict: IdempotencyConflict;
  busy: IdempotencyBusy;
  unavailable: IdempotencyUnavailable;
}

/** The channels of the idempotent methods. */
export const idempotencyChannels: EventChannels<IdempotencyEventTypes> = {
  ran: eventChannel('idempotency:ran'),
  failed: eventChannel('idempotency:failed'),
  repeated: eventChannel('idempotency:repeated'),
  conflict: eventChannel('idempotency:conflict'),
  busy: eventChannel('idempotency:busy'),
  unavailable: eventChannel('idempotency:unavailable'),
};

/** Publishes what happens to one call, to those who listen. */
export class IdempotentCallEvents {
  constructor(
    private readonly key: string,
    private readonly template: string | undefined,
    private readonly source: LockSource,
  ) {}

  repeated({ attempt }: Pick<IdempotencyRepeated, 'attempt'>): void {
    const { repeated } = idempotencyChannels;
    if (repeated.hasSubscribers) repeated.publish({ ...this.event, attempt });
  }

  conflict(): void {
    const { conflict } = idempotencyChannels;
    if (conflict.hasSubscribers) conflict.publish(this.event);
  }

  busy(waited: number): void {
    const { busy } = idempotencyChannels;
    if (busy.hasSubscribers) busy.publish({ ...this.event, waited });
  }

  unavailable(error: unknown): void {
    const { unavailable } = idempotencyChannels;
    if (unavailable.hasSubscribers) unavailable.publish({ ...this.event, error });
  }

  /** Publishes how the attempt ends. */
  attempt({ attempt }: Pick<IdempotencyRepeated, 'attempt'>, run: () => Promise<unknown>): Promise<unknown> {
    const { ran, failed } = idempotencyChannels;
    return ran.hasSubscribers || failed.hasSubscribers ? this.observed(attempt, run) : run();
  }

  private async observed(attempt: number, run: () => Promise<unknown>): Promise<unknown> {
    const { ran, failed } = idempotencyChannels;
    const begunAt = performance.now();
    try {
      const value = await run();
      ran.publish({ ...this.event, attempt, took: performance.now() - begunAt });
      return value;
    } catch (error) {
      failed.publish({ ...this.event, attempt, took: performance.now() - begunAt, error });
      throw error;
    }
  }

  private get event(): IdempotencyEvent {
    const { key, template, source } = this;
    return { key, template, backend: source.backend, label: source.label };
  }
}
