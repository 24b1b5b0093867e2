import { LinkedList } from './linked-list.js';

interface Shared {
  readonly listeners: LinkedList<() => void>;
  readonly onAbort: () => void;
}

/** By signal. */
const shared = new WeakMap<AbortSignal, Shared>();

/**
 * Listens to a signal that many may listen to at once: a signal that has more than ten listeners is taken for a leak by
 * Node.js, which prints a warning. All of them are one listener.
 */
export function listenToAbort(signal: AbortSignal, listener: () => void): { leave(): void } {
  const { listeners, onAbort } = sharedOf(signal);
  if (!listeners.first) signal.addEventListener('abort', onAbort, { once: true });
  const place = listeners.push(listener);
  return {
    leave: () => {
      if (place.leave() && !listeners.first) signal.removeEventListener('abort', onAbort);
    },
  };
}

function sharedOf(signal: AbortSignal): Shared {
  let found = shared.get(signal);
  if (!found) {
    const listeners = new LinkedList<() => void>();
    const onAbort = () => {
      for (let place = listeners.firstPlace; place; place = listeners.firstPlace) {
        place.leave();
        place.value();
      }
    };
    shared.set(signal, (found = { listeners, onAbort }));
  }
  return found;
}
