import type { Observable } from 'rxjs';

/** One call of a decorated method, with the method's own arguments. */
export interface MethodCall {
  readonly instance: object;
  /** `Class.method`, for messages. */
  readonly name: string;
  readonly args: readonly unknown[];
  /** Runs the method. */
  proceed(): unknown;
}

/**
 * Around-advice of a decorated method. Not a `NestInterceptor`, because those never see the methods of services, and
 * get the request and response instead of the arguments.
 */
export interface MethodInterceptor {
  /** For a method that returns a promise. */
  interceptPromise(call: MethodCall): Promise<unknown>;
  /** For a method that is declared to return an Observable. Absent if the decorator cannot stand on such a method. */
  interceptObservable?(call: MethodCall): Observable<unknown>;
}
