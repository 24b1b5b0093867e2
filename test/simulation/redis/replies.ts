// What a server answers. Strings are bytes: one character of a string is one byte.

export class ErrorReply {
  constructor(readonly message: string) {}
}

export class StatusReply {
  constructor(readonly text: string) {}
}

/** A floating-point number: a string to RESP2 and to scripts. */
export class DoubleReply {
  readonly text: string;

  constructor(value: number) {
    this.text = numberText(value);
  }
}

export type Reply =
  | null
  | number
  | string
  | ErrorReply
  | StatusReply
  | DoubleReply
  | readonly Reply[]
  | ReadonlySet<string>
  | ReadonlyMap<string, Reply>;

export const OK = new StatusReply('OK');

/** How a command ends early. */
export class Refused extends Error {
  readonly reply: ErrorReply;

  constructor(message: string) {
    super(message);
    this.reply = new ErrorReply(message);
  }
}

/** As C prints it with `%.17g`. */
export function numberText(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e17) return String(value);
  if (!Number.isFinite(value)) return value > 0 ? 'inf' : '-inf';
  const size = Math.abs(value);
  if (size >= 1e17 || size < 1e-4) {
    const [digits = '', power = ''] = value.toExponential(16).split('e');
    return `${withoutZeros(digits)}e${power.slice(0, 1)}${power.slice(1).padStart(2, '0')}`;
  }
  return withoutZeros(value.toPrecision(17));
}

function withoutZeros(digits: string): string {
  return digits.includes('.') ? digits.replace(/\.?0+$/, '') : digits;
}
