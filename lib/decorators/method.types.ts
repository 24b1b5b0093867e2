import type { Readable } from 'node:stream';
import type { StreamableFile } from '@nestjs/common';
import type { Observable } from 'rxjs';
import type { FitsKeyTemplate } from './key-template.types.js';

/** A method that can carry the decorators of the cache: one that returns a promise. */
export type PromiseMethod = (...args: never[]) => Promise<unknown>;

type AnyMethod = (...args: never[]) => unknown;

/**
 * An option that is a function of the method's arguments. Written as a method, whose parameters may be narrower: the
 * decorator compares them with those of the method.
 */
export type OfArguments<Answer> = { of(...args: unknown[]): Answer }['of'];

/** The same with the method's result before its arguments. */
export type OfResult<Answer> = { of(result: unknown, ...args: unknown[]): Answer }['of'];

/**
 * `unknown` where the promise of a method resolves to nothing of `Refused` (or the types do not tell), else `Problem`.
 */
export type ResolvesToNo<Refused, Method extends AnyMethod, Problem> =
  ReturnType<Method> extends Promise<infer Value>
    ? 0 extends 1 & Value
      ? unknown
      : [Extract<Value, Refused>] extends [never]
        ? unknown
        : Problem
    : unknown;

/** A promise of an Observable, or of a generator, is fulfilled before the work begins. */
export type BeginsAfterItsPromise = Observable<unknown> | AsyncGenerator;

/** A stream can be read once. */
export type ResultCanBeStored<Method extends PromiseMethod> = ResolvesToNo<
  BeginsAfterItsPromise | Readable | ReadableStream | StreamableFile,
  Method,
  { theCacheCannotStoreWhatThisPromiseResolvesTo: never }
>;

/**
 * `unknown` where a key function can be called with the arguments of the method, else a type whose property says so.
 */
export type TakesArguments<Method extends AnyMethod, Arguments extends unknown[]> =
  Parameters<Method> extends [...Arguments, ...infer _Rest] ? unknown : { keyFunctionDoesNotMatchTheMethod: never };

/** Of options whose `tags` are key templates. */
export type TagsFitTheMethod<Method extends AnyMethod, Options> = Options extends { readonly tags: infer Tags }
  ? FitsKeyTemplate<Method, Tags>
  : unknown;

/** As `TakesArguments`, for those of the options `Names` that are functions. */
export type OptionsTakeArguments<Method extends AnyMethod, Options, Names extends string> = OptionsTake<
  Parameters<Method>,
  Options,
  Names
>;

/** The same for those that are called with the result before the arguments. */
export type OptionsTakeResult<Method extends PromiseMethod, Options, Names extends string> = OptionsTake<
  [Awaited<ReturnType<Method>>, ...Parameters<Method>],
  Options,
  Names
>;

type OptionsTake<Arguments extends readonly unknown[], Options, Names extends string> = [
  Mismatch<Arguments, Options, Names>,
] extends [never]
  ? unknown
  : { optionDoesNotMatchTheMethod: Mismatch<Arguments, Options, Names> };

/** An option that may be absent says nothing: it is one of a type such as that of all options. */
type Mismatch<Arguments extends readonly unknown[], Options, Name extends string> = Name extends string
  ? Options extends Readonly<Record<Name, infer Value>>
    ? Extract<Value, AnyMethod> extends (...args: [...Arguments]) => unknown
      ? never
      : Name
    : never
  : never;
