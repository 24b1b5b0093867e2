import { BadRequestException } from '@nestjs/common';

/** The query of a request, as Express and Fastify parse it. */
export type GivenQuery = Readonly<Record<string, unknown>>;

/** Each parameter is one text. */
export class AdminQuery {
  /** @throws BadRequestException for a parameter that is not among `known` */
  constructor(
    private readonly given: GivenQuery,
    known: readonly string[],
  ) {
    for (const name of Object.keys(given)) {
      if (!known.includes(name)) {
        throw new BadRequestException(`Unknown parameter "${name}"; give any of ${known.join(', ')}`);
      }
    }
  }

  /** @throws BadRequestException for a parameter that is given twice, or without a value */
  text(name: string): string | undefined {
    const value = this.given[name];
    if (value === undefined) return undefined;
    if (typeof value === 'string' && value !== '') return value;
    throw new BadRequestException(`Give the parameter "${name}" once, with a value`);
  }

  /** Those of the parameters that are given. @throws BadRequestException as `text` */
  texts<Name extends string>(...names: readonly Name[]): { [Each in Name]?: string } {
    const given = names.map((name) => [name, this.text(name)] as const).filter(([, value]) => value !== undefined);
    return Object.fromEntries(given) as { [Each in Name]?: string };
  }

  /** @throws BadRequestException where it is missing, and as `text` */
  required(name: string): string {
    const value = this.text(name);
    if (value === undefined) throw new BadRequestException(`Give the parameter "${name}"`);
    return value;
  }

  /** @throws BadRequestException for anything but a whole number above 0, and as `text` */
  wholeNumber(name: string): number | undefined {
    const value = this.text(name);
    if (value === undefined || /^[1-9]\d{0,8}$/.test(value)) return value === undefined ? undefined : Number(value);
    throw new BadRequestException(`Give the parameter "${name}" as a whole number from 1`);
  }
}
