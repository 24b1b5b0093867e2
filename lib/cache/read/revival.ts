import type { CacheCore } from '../cache-core.js';
import type { EntrySettings } from '../options/entry-settings.js';

/** What `revive` made of a stored value, or nothing where it cannot: the value then counts as absent. */
export type Revived = { readonly value: unknown } | undefined;

/** What the callers get of a stored value. A promise where `revive` answers one. */
export function revived(
  core: CacheCore,
  key: string,
  revive: NonNullable<EntrySettings['revive']>,
  stored: unknown,
): Revived | Promise<Revived> {
  const refuse = (error: unknown): undefined => {
    core.warnings.warn(`revive threw for what is stored for "${key}", which counts as absent: ${String(error)}`);
  };
  try {
    const value = revive(stored);
    return value instanceof Promise ? value.then((settled: unknown) => ({ value: settled }), refuse) : { value };
  } catch (error) {
    return refuse(error);
  }
}
