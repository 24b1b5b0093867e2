import type { Pending } from '../pending.js';

export interface DefineLatchRequest {
  readonly name: string;
  /** How many arrivals open the latch. */
  readonly count: number;
  /** How long (ms) the latch is kept after its definition or its last arrival. */
  readonly ttl: number;
}

export interface ArrivalRequest {
  readonly name: string;
  /** An arrival with the same id counts once. */
  readonly arrival: string;
}

export interface LatchState {
  readonly count: number;
  /** How many arrivals are still missing: 0 when the latch is open. */
  readonly remaining: number;
}

export interface LatchListener {
  readonly process: string;
  onOpen(name: string): void;
  /** Messages arrive from now on; some may have been lost. */
  onConnected(): void;
}

/** Keeps count-down latches. */
export interface LatchStore {
  /** Defines the latch if there is none; resolves to its state, which may have another count. */
  define(request: DefineLatchRequest): Pending<LatchState>;
  /** `undefined` if there is no such latch. */
  arrive(request: ArrivalRequest): Pending<LatchState | undefined>;
  /** `undefined` if there is no such latch. That process gets a message when it opens in the next 5 s. */
  look(name: string, process?: string): Pending<LatchState | undefined>;
  listen(listener: LatchListener): void;
  unlisten(process: string): void;
}
