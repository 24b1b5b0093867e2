import type { PreparableStatement, Statement } from '../connection/prepared-statements.js';
import type { RowTicket } from './row-id.js';
import { bytes, characters, intervalOf, isPlain } from './sql.js';
import { processOf } from './waiting-marks.js';

export interface RowValues extends RowTicket {
  readonly name?: string;
  readonly ttl?: number;
}

interface Marked {
  readonly literal: (values: RowValues) => string;
  /** The SQL that reads the parameter. */
  readonly parameter: string;
  /** ASCII, which is the same in every character set. */
  readonly value: (values: RowValues) => string;
}

const MARKED: Readonly<Record<string, Marked>> = {
  id: { literal: ({ id }) => `x'${id}'`, parameter: 'UNHEX(?)', value: ({ id }) => id },
  name: {
    literal: ({ name = '' }) => characters(name),
    parameter: 'CONVERT(UNHEX(?) USING utf8mb4)',
    value: ({ name = '' }) => Buffer.from(name.slice(0, 255)).toString('hex'),
  },
  ticket: { literal: ({ ticket }) => bytes(ticket), parameter: '?', value: ({ ticket }) => ticket },
  process: {
    literal: ({ ticket }) => bytes(processOf(ticket)),
    parameter: '?',
    value: ({ ticket }) => processOf(ticket),
  },
  ttl: { literal: ({ ttl = 0 }) => intervalOf(ttl), parameter: '?', value: ({ ttl = 0 }) => intervalOf(ttl) },
};

/** A statement on one row; `:id`, `:name`, `:ticket`, `:process` and `:ttl` (in microseconds) stand for values. */
export class RowTemplate {
  private readonly parts: readonly string[];
  private readonly marked: readonly Marked[];
  private readonly sql: string;

  constructor(template: string) {
    const split = template.split(/:(id|name|ticket|process|ttl)\b/);
    this.parts = split.filter((_part, index) => index % 2 === 0);
    this.marked = split.filter((_part, index) => index % 2 === 1).map((marker) => MARKED[marker] as Marked);
    this.sql = this.filled(({ parameter }) => parameter);
  }

  with(values: RowValues): Statement {
    if (!isPlain(values.ticket)) return this.text(values);
    return new FilledTemplate(this.sql, this, values);
  }

  valuesOf(values: RowValues): string[] {
    return this.marked.map(({ value }) => value(values));
  }

  text(values: RowValues): string {
    return this.filled(({ literal }) => literal(values));
  }

  private filled(sqlOf: (marked: Marked) => string): string {
    let sql = this.parts[0] as string;
    for (const [index, marked] of this.marked.entries()) sql += sqlOf(marked) + (this.parts[index + 1] as string);
    return sql;
  }
}

class FilledTemplate implements PreparableStatement {
  constructor(
    readonly sql: string,
    private readonly template: RowTemplate,
    private readonly given: RowValues,
  ) {}

  get values(): string[] {
    return this.template.valuesOf(this.given);
  }

  text(): string {
    return this.template.text(this.given);
  }
}
