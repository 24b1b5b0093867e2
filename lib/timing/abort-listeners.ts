import { LinkedList, PlaceOf } from './brief-collections.js';

interface Shared {
  readonly listeners: LinkedList<PlaceOf<() => void>>;
  readonly onAbort: () => void;
}

/** The shared listener of each signal. */
const shared = new WeakMap<AbortSignal, Shared>();

/**
 * Listens to a signal that many callers may share. Node.js takes more than ten listeners on one signal for a leak and
 * prints a warning, so all callers share one listener.
 */
export function listenToAbort(signal: AbortSignal, listener: () => void): { leave(): void } {
  const { listeners, onAbort } = sharedOf(signal);
  if (!listeners.first) signal.addEventListener('abort', onAbort, { once: true });
  const place = listeners.push(new PlaceOf(listener));
  return {
    leave: () => {
      if (place.leave() && !listeners.first) signal.removeEventListener('abort', onAbort);
    },
  };
}

function sharedOf(signal: AbortSignal): Shared {
  let found = shared.get(signal);
  if (!found) {
    const listeners = new LinkedList<PlaceOf<() => void>>();
    const onAbort = () => {
      for (let place = listeners.first; place; place = listeners.first) {
        place.leave();
        place.value();
      }
    };
    shared.set(signal, (found = { listeners, onAbort }));
  }
  return found;
}
