import type { Readable } from 'node:stream';
import type { StreamableFile } from '@nestjs/common';
import type { Observable } from 'rxjs';
import type { FitsKeyTemplate } from './key-template.types.js';

/** A method that the decorators of the cache can stand on: it returns a promise. */
export type PromiseMethod = (...args: never[]) => Promise<unknown>;

/** A method for which a lock or a permit can be held: it ends later than it returns. */
export type HoldableMethod = (...args: never[]) => Promise<unknown> | Observable<unknown>;

export type AnyMethod = (...args: never[]) => unknown;

/**
 * Of the options that a decorator is given, those in `Names`, which its checks compare with the method. A parameter of
 * type `CachedOptions & Inferred<Options, ...>` infers the types of these alone from what is written. So an editor
 * shows the others with the comments of `CachedOptions`; of options that are inferred as a whole it shows none.
 */
export type Inferred<Options, Names extends string> = { [Name in keyof Options & Names]?: Options[Name] };

/**
 * An option that is a function of the method's arguments. Declared as a method, so that its parameters may be narrower;
 * the decorator compares them with those of the method.
 */
export type OfArguments<Answer> = { of(...args: unknown[]): Answer }['of'];

/** The same with the method's result before its arguments. */
export type OfResult<Answer> = { of(result: unknown, ...args: unknown[]): Answer }['of'];

/** `unknown` if the method has ended when its promise is fulfilled, otherwise `Problem`. */
export type EndsWithItsResult<Method extends AnyMethod, Problem> = ResolvesToNo<BeginsAfterItsPromise, Method, Problem>;

/** `unknown` if the result can be stored; a stream cannot, because it can be read only once. */
export type ResultCanBeStored<Method extends AnyMethod> = ResolvesToNo<
  BeginsAfterItsPromise | Readable | ReadableStream | StreamableFile,
  Method,
  { theCacheCannotStoreWhatThisPromiseResolvesTo: never }
>;

/** A promise of an Observable or of a generator is fulfilled before the work begins. */
type BeginsAfterItsPromise = Observable<unknown> | AsyncGenerator;

/**
 * `unknown` if the promise of a method cannot resolve to `Refused` (or the types do not say), otherwise `Problem`.
 */
type ResolvesToNo<Refused, Method extends AnyMethod, Problem> =
  ReturnType<Method> extends Promise<infer Value>
    ? 0 extends 1 & Value
      ? unknown
      : [Extract<Value, Refused>] extends [never]
        ? unknown
        : Problem
    : unknown;

/** `unknown` if a method may resolve to `undefined`, or returns an Observable, which may be empty; else `Problem`. */
export type MayResolveToUndefined<Method extends AnyMethod, Problem> =
  ReturnType<Method> extends Promise<infer Value>
    ? undefined extends Value
      ? unknown
      : void extends Value
        ? unknown
        : Problem
    : unknown;

/**
 * `unknown` if a key function can be called with the arguments of the method, otherwise a type that says so.
 */
export type TakesArguments<Method extends AnyMethod, Arguments extends unknown[]> =
  Parameters<Method> extends [...Arguments, ...infer _Rest] ? unknown : { keyFunctionDoesNotMatchTheMethod: never };

/** Checks the `tags` of the options that are key templates. */
export type TagsFitTheMethod<Method extends AnyMethod, Options, Target> = Options extends { readonly tags: infer Tags }
  ? FitsKeyTemplate<Method, Tags, Target>
  : unknown;

/** `unknown` if the functions of a decorator can have the instance as `this`, otherwise a type that says so. */
export type HaveThis<Target, This, Options> = [Target] extends [This]
  ? [WrongThis<Target, Options>] extends [never]
    ? unknown
    : { optionHasAnotherThisThanTheMethod: WrongThis<Target, Options> }
  : { keyFunctionHasAnotherThisThanTheMethod: never };

type WrongThis<Target, Options> = {
  [Name in keyof Options]-?: [Target] extends [ThisOf<Extract<Options[Name], AnyMethod>>] ? never : Name;
}[keyof Options];

type ThisOf<Function> = [Function] extends [never] ? unknown : ThisParameterType<Function>;

/** As `TakesArguments`, for those of the options in `Names` that are functions. */
export type OptionsTakeArguments<Method extends AnyMethod, Options, Names extends string> = OptionsTake<
  Parameters<Method>,
  Options,
  Names
>;

/** The same for options that are called with the result before the arguments. */
export type OptionsTakeResult<Method extends AnyMethod, Options, Names extends string> = OptionsTake<
  [Awaited<ReturnType<Method>>, ...Parameters<Method>],
  Options,
  Names
>;

type OptionsTake<Arguments extends readonly unknown[], Options, Names extends string> = [
  Mismatch<Arguments, Options, Names>,
] extends [never]
  ? unknown
  : { optionDoesNotMatchTheMethod: Mismatch<Arguments, Options, Names> };

/** Checks only options that are certainly given: an optional one belongs to a type such as that of all options. */
type Mismatch<Arguments extends readonly unknown[], Options, Name extends string> = Name extends string
  ? Options extends Readonly<Record<Name, infer Value>>
    ? Extract<Value, AnyMethod> extends (...args: [...Arguments]) => unknown
      ? never
      : Name
    : never
  : never;
