import type { EventChannels } from '../events/event-channel.js';

/** A function for each event of a table. */
export type Listeners<Types> = { readonly [Name in keyof Types]: (event: Types[Name]) => void };

/** Listens to all channels of a table. Returns the function that stops. */
export function listenAll<Types extends object>(
  channels: EventChannels<Types>,
  listeners: Partial<Listeners<Types>>,
): () => void {
  const names = Object.keys(listeners) as (keyof Types)[];
  const each = (name: keyof Types) => listeners[name] as (event: Types[keyof Types]) => void;
  for (const name of names) channels[name].subscribe(each(name));
  return () => {
    for (const name of names) channels[name].unsubscribe(each(name));
  };
}
