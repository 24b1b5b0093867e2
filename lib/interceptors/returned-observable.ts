import { isObservable } from 'rxjs';
import type { MethodCall } from './method-interceptor.js';
import type { InjectedService } from './wiring/injected-services.js';

/** The error for a method that returned an Observable without being declared to. `why` says what is wrong with that. */
export function undeclaredObservable(
  { ConfigError }: InjectedService<unknown>,
  { name }: MethodCall,
  why: string,
): Error {
  return new ConfigError(
    `${name} returned an Observable without being declared to: ${why}. Declare the return type as ` +
      'Observable<...>, with emitDecoratorMetadata on, and return it without a promise around it',
  );
}

/**
 * Runs a method that does its work before its promise settles.
 *
 * @throws ConfigError where it returned an Observable, which nobody would subscribe to
 */
export async function proceedToEnd({ ConfigError }: InjectedService<unknown>, call: MethodCall): Promise<unknown> {
  const result = await call.proceed();
  if (!isObservable(result)) return result;
  throw new ConfigError(
    `${call.name} returned an Observable, so that nothing of it has run; return a promise, as of firstValueFrom()`,
  );
}
