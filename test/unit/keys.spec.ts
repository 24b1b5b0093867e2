import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { hashKey } from '../../lib/keys/hash-key.js';

class FilterDto {
  constructor(
    readonly color?: string,
    readonly sizes: readonly number[] = [],
  ) {}
}

class Money {
  readonly #cents: number;

  constructor(cents: number) {
    this.#cents = cents;
  }

  toJSON(): unknown {
    return { cents: this.#cents };
  }
}

/** The same data with the properties of every object the other way round. */
function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, each]) => [name, reversed(each)] as const);
  return Object.fromEntries(entries.toReversed());
}

const shared = { a: 1 };

/** As it came in a request: JSON has no -0. */
const data = fc.jsonValue().map((value): unknown => JSON.parse(JSON.stringify(value)));

describe('hashKey', () => {
  it('is 64 hexadecimal digits, and the same in every release', () => {
    const value = { b: [1, 'x', null, true], a: { d: new Date(0), n: 7n } };
    expect(hashKey(value)).toBe('b1dea6f2e4ac2a576abae80b62205eb21abfa81f86b5a50a2d23171d22f8f18e');
  });

  it('does not depend on the order of properties', () => {
    fc.assert(fc.property(data, (value) => expect(hashKey(reversed(value))).toBe(hashKey(value))));
  });

  it('differs for data that differ', () => {
    fc.assert(
      fc.property(data, data, (one, other) => (hashKey(one) === hashKey(other)) === isDeepStrictEqual(one, other)),
      { numRuns: 2_000 },
    );
  });

  it.each<[string, unknown, unknown]>([
    ['a number and its text', 1, '1'],
    ['a number and a bigint', 1, 1n],
    ['a bigint and its text', 1n, '1n'],
    ['null and its text', null, 'null'],
    ['null and an absent property', { a: null }, {}],
    ['a list and a list in it', [1, [2]], [1, 2]],
    ['two orders of a list', [1, 2], [2, 1]],
    ['a date and its text', new Date(0), new Date(0).toISOString()],
    ['two dates', new Date(0), new Date(1)],
    ['a map and an object', new Map([['a', 1]]), { a: 1 }],
    ['two maps', new Map([['a', 1]]), new Map([['a', 2]])],
    ['keys of maps by their kind', new Map([[1, 1]]), new Map([['1', 1]])],
    ['two sets', new Set([1, 2]), new Set([1, 3])],
    ['a set and a list', new Set([1]), [1]],
    ['bytes', Buffer.from('a'), Buffer.from('b')],
    ['kinds of numbers', new Uint8Array([1, 0]), new Uint16Array([1])],
    ['text that looks like structure', ['a', 'b'], ['a","b']],
    ['names that look like structure', { 'a":1,"b': 1 }, { a: 1, b: 1 }],
    ['half surrogate pairs', '\ud800', '\ud801'],
    ['private state that toJSON shows', new Money(1), new Money(2)],
    ['URLs', new URL('http://a/'), new URL('http://b/')],
  ])('tells %s apart', (_what, one, other) => {
    expect(hashKey(one)).not.toBe(hashKey(other));
  });

  it.each<[string, unknown, unknown]>([
    ['an instance and its data', new FilterDto('red', [1]), { sizes: [1], color: 'red' }],
    ['an undefined property and none', { a: 1, b: undefined }, { a: 1 }],
    ['an object without a prototype', Object.assign(Object.create(null) as object, { a: 1 }), { a: 1 }],
    [
      'two orders of a map',
      new Map([
        ['a', 1],
        ['b', 2],
      ]),
      new Map([
        ['b', 2],
        ['a', 1],
      ]),
    ],
    ['two orders of a set', new Set([{ a: 1 }, 'b']), new Set(['b', { a: 1 }])],
    ['a Buffer and its bytes', Buffer.from('a'), new Uint8Array([97])],
    ['an object twice, which is no cycle', [shared, shared], [{ a: 1 }, { a: 1 }]],
    ['minus zero and zero', -0, 0],
    ['what toJSON answers and the same', new Money(5), { cents: 5 }],
  ])('takes %s for the same', (_what, one, other) => {
    expect(hashKey(one)).toBe(hashKey(other));
  });

  it.each<[string, unknown, RegExp]>([
    ['undefined', undefined, /^The value is undefined, which cannot be hashed; give data/],
    ['undefined in a list', { a: [1, undefined] }, /^What is at \.a\[1\] is undefined/],
    ['a hole', [1, , 2], /\[1\] is undefined/], // oxlint-disable-line no-sparse-arrays
    ['a function', { a: { b: () => 1 } }, /^What is at \.a\.b is a function/],
    ['a symbol', Symbol('x'), /is a symbol/],
    ['NaN', { price: Number.NaN }, /\.price is NaN/],
    ['Infinity', [Infinity], /\[0\] is Infinity/],
    ['an invalid date', new Date('x'), /is an invalid Date/],
    ['a promise', { rows: Promise.resolve(1) }, /\.rows is a Promise/],
    ['a pattern', /x/, /is a RegExp/],
    ['an error', new Error('x'), /is a Error/],
    ['query parameters', new URLSearchParams('a=1'), /is a URLSearchParams/],
    ['a WeakMap', new WeakMap(), /is a WeakMap/],
  ])('refuses %s', (_what, value, message) => {
    expect(() => hashKey(value)).toThrow(TypeError);
    expect(() => hashKey(value)).toThrow(message);
  });

  describe('refuses what it cannot see', () => {
    class Amount {
      readonly #cents: number;
      constructor(cents: number) {
        this.#cents = cents;
      }
      get shown(): number {
        return this.#cents;
      }
    }
    class Price extends Amount {
      currency = 'EUR';
    }
    class Told extends Amount {
      toJSON() {
        return { cents: this.shown };
      }
    }
    class Colours {
      // Not a #private field.
      main = '#fff';
      static #made = 0;
      constructor() {
        Colours.#made += 1;
        if (Colours.#made > 1_000) throw new Error('too many');
      }
      #twice() {
        return this.main + this.main;
      }
      both() {
        return this.#twice();
      }
    }
    class Tagged extends Array<number> {
      unit = 'cm';
    }
    it.each<[string, unknown, RegExp]>([
      ['private fields', new Amount(1), /Amount, which has private fields/],
      ['private fields of a base class', { price: new Price(1) }, /\.price is an instance of Price/],
      ['a symbol as a name', { [Symbol('tenant')]: 1 }, /Symbol\(tenant\)/],
      ['a property that is not enumerable', Object.defineProperty({ a: 1 }, 'b', { value: 2 }), /not shown \(b\)/],
      ['a property of a list', Object.assign([1], { page: 2 }), /a list with properties/],
      ['a property of a subclass of a list', Tagged.from([1, 2]), /a list with properties/],
      ['a property of a Map', Object.assign(new Map(), { page: 2 }), /a Map with properties/],
      ['data of a prototype', Object.create({ page: 2 }), /prototype has data \(page\)/],
      [
        'data of a prototype without one',
        Object.create(Object.assign(Object.create(null), { page: 2 })),
        /data \(page\)/,
      ],
      ['a property of a Date', Object.assign(new Date(0), { zone: 'CET' }), /a Date with properties/],
    ])('%s', (_, value, message) => {
      expect(() => hashKey(value)).toThrow(message);
    });

    it('but takes toJSON, and classes whose fields are all seen', () => {
      expect(hashKey(new Told(1))).toBe(hashKey({ cents: 1 }));
      expect(hashKey(new Colours())).toBe(hashKey({ main: '#fff' }));
    });
  });

  it('refuses cycles, through lists and maps too', () => {
    const object: Record<string, unknown> = { list: [] };
    (object['list'] as unknown[]).push(object);
    expect(() => hashKey(object)).toThrow(/^What is at \.list\[0\] is a cycle/);
    const map = new Map<string, unknown>();
    map.set('me', map);
    expect(() => hashKey(map)).toThrow(/is a cycle/);
  });

  it('refuses endless nesting, in time', () => {
    let value: unknown = 1;
    for (let depth = 0; depth < 100_000; depth += 1) value = [value];
    expect(() => hashKey(value)).toThrow(/is nested more than 500 levels deep/);
  });
});
