import { channel } from 'node:diagnostics_channel';

/** A channel of `node:diagnostics_channel` on which all events are of one type. */
export interface EventChannel<Event> {
  /** The name for `diagnostics_channel.subscribe`. */
  readonly name: string;
  /** Whether anybody listens. Publishers check it first, so that nothing is computed for nobody. */
  readonly hasSubscribers: boolean;
  publish(event: Event): void;
  subscribe(listener: (event: Event) => void): void;
  unsubscribe(listener: (event: Event) => void): boolean;
}

/** One channel for each type of event. */
export type EventChannels<Types> = { readonly [Name in keyof Types]: EventChannel<Types[Name]> };

/** The channel `nest-redis-lock:<name>`, which all copies of this package in the process share. */
export function eventChannel<Event extends object>(name: string): EventChannel<Event> {
  return channel(`nest-redis-lock:${name}`) as unknown as EventChannel<Event>;
}
