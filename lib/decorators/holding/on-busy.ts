import type { OptionChecks } from '../../options/option-checks.js';

/** @throws the ConfigError of `checks` for what is not a reaction to a busy name */
export function requireOnBusy(onBusy: unknown, checks: OptionChecks): void {
  if (onBusy === 'throw' || onBusy === 'skip' || typeof onBusy === 'function') return;
  throw checks.refused('onBusy', onBusy, "'throw', 'skip' or a function");
}
