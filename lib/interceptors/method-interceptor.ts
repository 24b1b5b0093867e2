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
 * Around-advice of a decorated method. Not a `NestInterceptor`: those never see the methods of services, and get the
 * request and the response instead of the arguments.
 */
export interface MethodInterceptor {
  /** For a method that returns a promise. */
  interceptPromise(call: MethodCall): Promise<unknown>;
  /** For a method that is declared to return an Observable. Absent where the decorator cannot stand on such. */
  interceptObservable?(call: MethodCall): Observable<unknown>;
}
