import { inspect } from 'node:util';
import { OWN_STORES } from '../contracts/store.js';

/** Whether an answer has the form that the contract gives it; `asked` is the first argument of the call. */
export type Form = (answer: unknown, asked?: unknown) => boolean;

/**
 * The forms by the names of the calls; those of a part of the store stand below the name of the part. One in a list is
 * that of each answer of a call which returns one for each of the requests that it was given, to settle by itself.
 */
export interface Forms {
  readonly [method: string]: Form | readonly [Form] | Forms;
}

export const isAny: Form = () => true;
/** Also NaN. */
export const isAnyNumber: Form = (answer) => typeof answer === 'number';
export const isNumber: Form = (answer) => typeof answer === 'number' && !Number.isNaN(answer);
export const isBoolean: Form = (answer) => typeof answer === 'boolean';
export const isText: Form = (answer) => typeof answer === 'string';

export function orNull(form: Form): Form {
  return (answer, asked) => answer === null || form(answer, asked);
}

export function orAbsent(form: Form): Form {
  return (answer, asked) => answer === undefined || form(answer, asked);
}

/** With `asked`: one answer for each of the items that the call was given. */
export function listOf(form: Form, asked?: (request: unknown) => unknown): Form {
  return (answer, request) =>
    Array.isArray(answer) &&
    answer.every((each) => form(each)) &&
    (!asked || answer.length === (asked(request) as readonly unknown[]).length);
}

export function withParts(forms: Readonly<Record<string, Form>>): Form {
  const parts = Object.entries(forms);
  return (answer) =>
    typeof answer === 'object' && answer !== null && parts.every(([part, form]) => form(Reflect.get(answer, part)));
}

/** One of several answers, by its `status`. */
export function byStatus(forms: Readonly<Record<string, Form>>): Form {
  const isStatus = withParts({ status: (status) => typeof status === 'string' && Object.hasOwn(forms, status) });
  return (answer) => isStatus(answer) && (forms[(answer as { status: string }).status] as Form)(answer);
}

export function both(one: Form, other: Form): Form {
  return (answer, asked) => one(answer, asked) && other(answer, asked);
}

/**
 * A store of the application's, of which a call rejects where the answer is none of the contract, where the call
 * throws, and where what it returns settles in another way than a promise does. `tell` gets the line for the log. What
 * the stores of this package answer is not looked at.
 */
export function checked<Part extends object>(
  part: Part,
  forms: Forms,
  tell: (call: string, why: string) => void = () => {},
): Part {
  if (OWN_STORES.has(part)) return part;
  // Not a proxy of the store itself: that of a frozen object may not return anything else than the object has.
  return new Proxy({} as Part, {
    has: (_, name) => name in part,
    get: (_, name) => {
      const value = Reflect.get(part, name, part) as unknown;
      const call = String(name);
      const form = forms[call];
      if (!form || value === undefined) return typeof value === 'function' ? (value.bind(part) as unknown) : value;
      if (typeof form === 'object' && !isEach(form)) return checked(value as object, form, tell);
      const judged = (pending: () => unknown, wanted: Form, asked: unknown) =>
        new Promise((resolve) => resolve(pending())).then((answer) => {
          if (wanted(answer, asked)) return answer;
          const why = `it answered ${inspect(answer, { depth: 1, breakLength: Infinity })}`;
          tell(call, why);
          throw new WrongAnswer(why);
        });
      return (...args: unknown[]) => {
        const send = () => Reflect.apply(value as () => unknown, part, args);
        if (!isEach(form)) return judged(send, form, args[0]);
        return eachOf(send(), args[0]).map((pending) => judged(() => pending, form[0], undefined));
      };
    },
  });
}

function isEach(form: Form | readonly [Form] | Forms): form is readonly [Form] {
  return Array.isArray(form);
}

/** @throws WrongAnswer where it is not known which of the requests each is an answer to */
function eachOf(pending: unknown, requests: unknown): unknown[] {
  const { length } = requests as readonly unknown[];
  if (Array.isArray(pending) && pending.length === length) return Array.from<unknown>(pending);
  const shown = inspect(pending, { depth: 0, breakLength: Infinity });
  throw new WrongAnswer(`it returned ${shown} in the place of a list of ${length}`);
}

/** The store did answer: the name keeps the circuit breaker closed. */
class WrongAnswer extends Error {
  override readonly name = 'ReplyError';
}
