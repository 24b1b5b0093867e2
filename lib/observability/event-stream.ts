import { map, merge, Observable } from 'rxjs';
import { textOf, type Warnings } from '../errors/limited-log.js';
import type { EventChannels } from '../events/event-channel.js';

/** An event with its name. */
export type NamedEvent<Types> = {
  [Name in keyof Types]: { readonly name: Name; readonly event: Types[Name] };
}[keyof Types];

/** The events of all module instances of this process. It costs nothing while nobody listens. */
export class EventStream<Types extends object> {
  /** @internal */
  constructor(
    private readonly channels: EventChannels<Types>,
    private readonly warnings: Warnings,
  ) {}

  /** All events. Subscribing makes every event cost a payload; `of` costs less. */
  get all(): Observable<NamedEvent<Types>> {
    const names = Object.keys(this.channels) as (keyof Types)[];
    return merge(...names.map((name) => this.of(name).pipe(map((event) => ({ name, event })))));
  }

  /** The events of one name. As with every Observable, RxJS reports an error of an observer as uncaught. */
  of<Name extends keyof Types>(name: Name): Observable<Types[Name]> {
    const channel = this.channels[name];
    return new Observable((subscriber) => {
      const next = (event: Types[Name]) => subscriber.next(event);
      channel.subscribe(next);
      return () => channel.unsubscribe(next);
    });
  }

  /**
   * Calls `listener` for each event of the name, until the returned function is called. It runs inside of the call that
   * publishes the event, so it must be quick. An error that it throws, or rejects with, is logged.
   */
  on<Name extends keyof Types>(name: Name, listener: (event: Types[Name]) => unknown): () => void {
    const channel = this.channels[name];
    const failed = (error: unknown) =>
      this.warnings.warn(`A listener of the event ${String(name)} failed: "${textOf(error)}"`);
    const guarded = (event: Types[Name]) => {
      try {
        const result = listener(event);
        if (result instanceof Promise) result.catch(failed);
      } catch (error) {
        failed(error);
      }
    };
    channel.subscribe(guarded);
    return () => void channel.unsubscribe(guarded);
  }
}

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
