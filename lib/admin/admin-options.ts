import { BadRequestException, type CanActivate, type ModuleMetadata, type Type } from '@nestjs/common';
import { instance } from '../options/checks.js';
import { lockOption } from '../options/option-checks.js';
import { OptionTable, settingOf } from '../options/option-table.js';

/** The options of `LockAdminModule.register`. Unknown options are refused. */
export interface LockAdminOptions {
  /** The guards of all routes, at least one: classes, which Nest makes with what `imports` export. */
  guards: readonly Type<CanActivate>[];
  /** Where the routes are. @default 'admin/locks' */
  path?: string;
  /** Modules that export what the guards inject. @default none */
  imports?: ModuleMetadata['imports'];
}

interface LockAdminSettings {
  readonly guards: readonly Type<CanActivate>[];
  readonly path: string;
  readonly imports: NonNullable<ModuleMetadata['imports']>;
}

const GUARDS = 'a list of one guard class or more, which let administrators in: { guards: [AdminGuard] }';

const setting = settingOf<LockAdminSettings>();

const ADMIN_OPTIONS = new OptionTable<LockAdminOptions, LockAdminSettings>(
  lockOption,
  'option of LockAdminModule',
  '',
  { guards: [], path: 'admin/locks', imports: [] },
  {
    guards: setting('guards', instance(isGuards, GUARDS)),
    path: setting('path', instance(isPath, "a path such as 'admin/locks'")),
    imports: setting('imports', instance(isList, 'a list of modules')),
  },
);

/** @throws LockConfigError for an option that it cannot take, and without a guard */
export function lockAdminSettings(options: LockAdminOptions): LockAdminSettings {
  const settings = ADMIN_OPTIONS.settings(lockOption.object('options', options, `an object with ${GUARDS}`));
  if (settings.guards.length === 0) throw lockOption.refused('guards', options.guards, GUARDS);
  return settings;
}

function isGuards(value: unknown): value is readonly Type<CanActivate>[] {
  return Array.isArray(value) && value.length > 0 && value.every(isGuardClass);
}

function isGuardClass(value: unknown): boolean {
  return typeof value === 'function' && 'canActivate' in ((value.prototype as object | undefined) ?? {});
}

function isPath(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isList(value: unknown): value is NonNullable<ModuleMetadata['imports']> {
  return Array.isArray(value);
}

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
