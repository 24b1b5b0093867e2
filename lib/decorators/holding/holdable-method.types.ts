import type { Observable } from 'rxjs';
import type { BeginsAfterItsPromise, MayResolveToUndefined, ResolvesToNo } from '../method.types.js';

/** A method for which a lock or a permit can be held: it ends later than it returns. */
export type HoldableMethod = (...args: never[]) => Promise<unknown> | Observable<unknown>;

/** `unknown` if the method has ended when its promise is fulfilled, otherwise `Problem`. */
export type EndsWithItsResult<Method extends HoldableMethod, Problem> = ResolvesToNo<
  BeginsAfterItsPromise,
  Method,
  Problem
>;

/** `'skip'` needs a method that may resolve to `undefined`. */
export type MayBeSkipped<Method extends HoldableMethod, Options> = Options extends { onBusy: 'skip' }
  ? MayResolveToUndefined<Method, { onBusySkipNeedsAMethodThatMayResolveToUndefined: never }>
  : unknown;
