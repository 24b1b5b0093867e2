/** Those who wait under one signal: it is listened to once, however many they are. */
const WAITING = new WeakMap<AbortSignal, Set<() => void>>();

/** What `work` answers, unless the signal is aborted before: then its reason, while the work goes on. */
export function abandonable<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    const waiting = WAITING.get(signal) ?? listened(signal);
    const abandon = () => reject(signal.reason);
    waiting.add(abandon);
    work()
      .finally(() => waiting.delete(abandon))
      .then(resolve, reject);
  });
}

function listened(signal: AbortSignal): Set<() => void> {
  const waiting = new Set<() => void>();
  WAITING.set(signal, waiting);
  signal.addEventListener('abort', () => waiting.forEach((abandon) => abandon()), { once: true });
  return waiting;
}
