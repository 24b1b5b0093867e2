import type { EventEmitter } from 'node:events';

/**
 * Raises the number of listeners above which Node.js warns of a leak: several modules may share one client. Returns
 * what lowers it again. A limit of 0 or `Infinity`, which never warns, stays.
 */
export function allowListeners(
  emitter: Pick<EventEmitter, 'getMaxListeners' | 'setMaxListeners'>,
  more: number,
): () => void {
  const change = (by: number) => {
    const most = emitter.getMaxListeners();
    // The application may set another limit at any time.
    if (most !== Infinity && most > Math.max(0, -by)) emitter.setMaxListeners(most + by);
  };
  const before = emitter.getMaxListeners();
  if (before === 0 || before === Infinity) return () => {};
  change(more);
  return () => change(-more);
}
