import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { CacheEventTypes, LockEventTypes } from 'nest-redis-lock/events';
import { cacheChannels } from '../../lib/events/cache-channels.js';
import { lockChannels } from '../../lib/events/lock-channels.js';

type EventTypes = LockEventTypes & CacheEventTypes;
type Name = keyof EventTypes;
type Recorded = { [N in Name]: { readonly name: N; readonly event: EventTypes[N] } }[Name];

const CHANNELS = { ...lockChannels, ...cacheChannels };

/** Records the events of this process, as a listener of `node:diagnostics_channel` gets them. */
export class RecordedEvents implements Disposable {
  readonly all: Recorded[] = [];
  private readonly listeners: [string, (event: unknown) => void][] = [];

  constructor(names = Object.keys(CHANNELS) as Name[]) {
    for (const name of names) {
      const channel = CHANNELS[name].name;
      const listener = (event: unknown) => void this.all.push({ name, event } as Recorded);
      subscribe(channel, listener);
      this.listeners.push([channel, listener]);
    }
  }

  get names(): string[] {
    return this.all.map(({ name }) => name);
  }

  of<N extends Name>(name: N): EventTypes[N][] {
    return this.all.filter((each) => each.name === name).map(({ event }) => event as EventTypes[N]);
  }

  [Symbol.dispose](): void {
    for (const [channel, listener] of this.listeners) unsubscribe(channel, listener);
  }
}
