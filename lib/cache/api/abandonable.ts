import { listenToAbort } from '../../timing/abort-listeners.js';

/** What `work` answers, unless the signal is aborted before: then its reason, while the work goes on. */
export function abandonable<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    const listening = listenToAbort(signal, () => reject(signal.reason));
    work()
      .finally(() => listening.leave())
      .then(resolve, reject);
  });
}
