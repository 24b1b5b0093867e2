/** What may stand in a key. */
type Scalar = string | number | bigint | boolean;

/**
 * Compares the placeholders of a key template with the parameters of the method that it stands on, at compile time:
 * `unknown` when they fit (or when the types do not tell, as with `any`), else a type whose property says what is wrong.
 */
export type FitsKeyTemplate<Method extends (...args: never[]) => unknown, Templates> = [
  Problem<Parameters<Method>, TextOf<Templates>>,
] extends [never]
  ? unknown
  : { keyTemplateDoesNotFitTheMethod: Problem<Parameters<Method>, TextOf<Templates>> };

/** `unknown` for a template of one key, else a type whose property says what is wrong. */
export type YieldsOneKey<Template extends string> = [
  Extract<Placeholder<Template>, `${string}.*` | `${string}.*.${string}`>,
] extends [never]
  ? unknown
  : { keyTemplateYieldsOneKeyForEachElement: Template };

type TextOf<Templates> = Templates extends readonly (infer Text)[] ? Text : Templates;

type Problem<Arguments extends readonly unknown[], Template> = Template extends string
  ? string extends Template
    ? never
    : ProblemAt<Arguments, Placeholder<Template>>
  : never;

type Placeholder<Template extends string> = Template extends `${string}<${infer Text}>${infer Rest}`
  ? Text | Placeholder<Rest>
  : never;

type ProblemAt<Arguments extends readonly unknown[], Text extends string> = Text extends `${infer Index}.${infer Path}`
  ? Walk<ArgumentAt<Arguments, Index>, Path, Text>
  : Text extends string
    ? Final<ArgumentAt<Arguments, Text>, Text>
    : never;

type ArgumentAt<Arguments extends readonly unknown[], Index extends string> = Index extends `${number}`
  ? Index extends keyof Arguments
    ? Arguments[Index]
    : number extends Arguments['length']
      ? Arguments[number]
      : Missing<`the method has no argument ${Index}`>
  : Missing<'write the number of an argument and a path, as in <0> or <0.customer.id>'>;

interface Missing<Why extends string> {
  readonly whyMissing: Why;
}

type Walk<Value, Path extends string, Text extends string> = Path extends `${infer Step}.${infer Rest}`
  ? Walk<PropertyOf<Value, Step>, Rest, Text>
  : Final<PropertyOf<Value, Path>, Text>;

type PropertyOf<Value, Step extends string> =
  Untold<Value> extends true
    ? unknown
    : Value extends null | undefined
      ? never
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

type Final<Value, Text extends string> =
  Untold<Value> extends true
    ? never
    : Value extends Missing<infer Why>
      ? `<${Text}>: ${Why}`
      : [NonNullable<Value>] extends [Scalar]
        ? never
        : `<${Text}>: it is not always a string, number, bigint or boolean`;

/** Where the types say nothing: `any`, `unknown`, and `never`. */
type Untold<Value> = 0 extends 1 & Value ? true : unknown extends Value ? true : [Value] extends [never] ? true : false;
