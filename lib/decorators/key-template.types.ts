/** The types that can stand in a key. */
type Scalar = string | number | bigint | boolean;

/**
 * Compares the placeholders of a key template with the parameters and the class of the decorated method at compile
 * time: `unknown` if they fit (or if the types do not say, as with `any`), otherwise a type whose property states the
 * problem.
 */
export type FitsKeyTemplate<Method extends (...args: never[]) => unknown, Templates, Target> = [
  Problem<Sources<Parameters<Method>, Target>, TextOf<Templates>>,
] extends [never]
  ? unknown
  : { keyTemplateDoesNotFitTheMethod: Problem<Sources<Parameters<Method>, Target>, TextOf<Templates>> };

/** The same for a name in which only properties of the instance (`<this.shop>`) are replaced. */
export type FitsInstance<Target, Name extends string> = [
  ProblemAt<Sources<[], Target>, Extract<Placeholder<Name>, `${'' | '#'}this.${string}`>>,
] extends [never]
  ? unknown
  : { nameDoesNotFitTheClass: Placeholder<Name> };

/** What the values of a template are taken from. */
interface Sources<Arguments, Target> {
  readonly arguments: Arguments;
  readonly target: Target;
}

/** `unknown` for a template of one key, otherwise a type whose property states the problem. */
export type YieldsOneKey<Template extends string> = [
  Extract<Placeholder<Template>, `${string}.*` | `${string}.*.${string}`>,
] extends [never]
  ? unknown
  : { keyTemplateYieldsOneKeyForEachElement: Template };

/** `unknown` for a name without a placeholder that begins so, otherwise a type whose property states the problem. */
export type IsFixedName<
  Name extends string,
  Begin extends string,
> = Name extends `${string}<${'' | '#'}${Begin}${string}>${string}`
  ? { nothingReplacesAPlaceholderInThisName: Name }
  : unknown;

type TextOf<Templates> = Templates extends readonly (infer Text)[] ? Text : Templates;

type Problem<Of extends Sources<readonly unknown[], unknown>, Template> = Template extends string
  ? string extends Template
    ? never
    : ProblemAt<Of, Placeholder<Template>> | ForeignProblem<Template>
  : never;

type Placeholder<Template extends string> = Template extends `${string}<${infer Text}>${infer Rest}`
  ? Text | Placeholder<Rest>
  : never;

type ProblemAt<Of extends Sources<readonly unknown[], unknown>, Text extends string> = Text extends `#${infer Unhashed}`
  ? ProblemOf<ValueOf<Of, Unhashed>, Text, NotHashable>
  : Text extends string
    ? ProblemOf<ValueOf<Of, Text>, Text, NotScalar>
    : never;

/** With a `?` at its end, the value may be absent. */
type ValueOf<Of extends Sources<readonly unknown[], unknown>, Text extends string> = Text extends `${infer Needed}?`
  ? Exclude<ValueAt<Of, Needed>, null | undefined>
  : ValueAt<Of, Text>;

type ValueAt<
  Of extends Sources<readonly unknown[], unknown>,
  Text extends string,
> = Text extends `${infer Index}.${infer Path}`
  ? Index extends 'this'
    ? OnInstance<Of['target'], Path>
    : Walk<ArgumentAt<Of['arguments'], Index>, Path>
  : ArgumentAt<Of['arguments'], Text>;

/** A class with private or protected members takes any name, because the types do not show these members. */
type OnInstance<Target, Path extends string> = Path extends `${infer Step}.${infer Rest}`
  ? Walk<OwnProperty<Target, Step>, Rest>
  : OwnProperty<Target, Path>;

type OwnProperty<Target, Step extends string> = Step extends 'constructor'
  ? { readonly name: string }
  : Step extends keyof Target
    ? Target[Step]
    : { [Name in keyof Target]: Target[Name] } extends Target
      ? NoMember<Step>
      : unknown;

type ArgumentAt<Arguments extends readonly unknown[], Index extends string> = Index extends `${number}`
  ? Index extends keyof Arguments
    ? Arguments[Index]
    : number extends Arguments['length']
      ? Arguments[number]
      : Missing<`the method has no argument ${Index}`>
  : Missing<'write the number of an argument and a path, as in <0> or <0.customer.id>, or a property, as in <this.shop>'>;

interface Missing<Why extends string> {
  readonly whyMissing: Why;
}

type Walk<Value, Path extends string> = Path extends `${infer Step}.${infer Rest}`
  ? Walk<PropertyOf<Value, Step>, Rest>
  : PropertyOf<Value, Path>;

type PropertyOf<Value, Step extends string> =
  Untold<Value> extends true
    ? unknown
    : Value extends null | undefined
      ? undefined
      : Value extends Missing<string>
        ? Value
        : Step extends '*'
          ? ElementOf<Value>
          : Member<Value, Step>;

type ElementOf<Value> = Value extends readonly (infer Element)[]
  ? Element
  : Missing<'only a list has elements to walk with *'>;

type Member<Value, Step extends string> = Step extends keyof Value
  ? Value[Step]
  : Step extends `${infer Index extends number}`
    ? Index extends keyof Value
      ? Value[Index]
      : NoMember<Step>
    : NoMember<Step>;

type NoMember<Step extends string> = Missing<`there is no property "${Step}"`>;

type NotScalar = 'it is not always a string, number, bigint or boolean; <#0> makes a key part of an object';
type NotHashable = 'a function or a symbol cannot be hashed';

type ProblemOf<Value, Text extends string, Why extends NotScalar | NotHashable> =
  Untold<Value> extends true
    ? never
    : Value extends Missing<infer Reason>
      ? `<${Text}>: ${Reason}`
      : Value extends Absent<Why>
        ? `<${Text}>: it may be ${Value}; write <${Text}?>`
        : FitsAs<Value, Why> extends true
          ? never
          : `<${Text}>: ${Why}`;

/** What no key part is made of. `null` can be hashed. */
type Absent<Why> = Why extends NotScalar ? null | undefined : undefined;

type FitsAs<Value, Why> = Why extends NotScalar
  ? [Value] extends [Scalar]
    ? true
    : false
  : [Extract<Value, symbol | ((...args: never[]) => unknown)>] extends [never]
    ? true
    : false;

/**
 * The placeholders of other libraries are text here. At decoration, `foreignPlaceholder` finds further ones.
 */
type ForeignProblem<Template extends string> =
  | (Template extends `${string}$\{${string}` | `{${number}}${string}` ? OneKeyForAll<Template> : never)
  | (Template extends `${infer Head}{${infer First}${string}`
      ? Head extends ''
        ? never
        : First extends Letter | Digit
          ? OneKeyForAll<Template>
          : never
      : never)
  | (Template extends `${infer Head}#${infer First}${string}`
      ? Head extends '' | `${string}${Separator}`
        ? First extends Letter | '{'
          ? OneKeyForAll<Template>
          : never
        : never
      : never);

type OneKeyForAll<Template extends string> =
  `${Template}: all calls would share one key; write <0> for the first argument, <0.id> for its property id`;

export type Digit = '0' | '1' | '2' | '3' | '4' | '5' | '6' | '7' | '8' | '9';
type Letter = LowerCase | Uppercase<LowerCase> | '_';
// prettier-ignore
type LowerCase =
  | 'a' | 'b' | 'c' | 'd' | 'e' | 'f' | 'g' | 'h' | 'i' | 'j' | 'k' | 'l' | 'm'
  | 'n' | 'o' | 'p' | 'q' | 'r' | 's' | 't' | 'u' | 'v' | 'w' | 'x' | 'y' | 'z';
type Separator = ':' | '-' | '_' | '/' | '.' | '|' | ' ';

/** Where the types say nothing: `any`, `unknown`, and `never`. */
type Untold<Value> = 0 extends 1 & Value ? true : unknown extends Value ? true : [Value] extends [never] ? true : false;
