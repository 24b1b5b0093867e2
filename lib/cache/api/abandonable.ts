import { listenToAbort } from '../../timing/abort-listeners.js';

/** Settles as `work` does, or rejects with the signal's reason if that is aborted first; the work then goes on. */
export function abandonable<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    const listening = listenToAbort(signal, () => reject(signal.reason));
    work()
      .finally(() => listening.leave())
      .then(resolve, reject);
  });
}
