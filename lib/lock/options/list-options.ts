import { text, wholeNumber } from '../../options/checks.js';
import { lockOption } from '../../options/option-checks.js';
import { OptionTable, settingOf } from '../../options/option-table.js';

/** Which page of `LockService.list`. */
export interface LockListOptions {
  /** The `cursor` of the page before. @default none: the first page */
  cursor?: string | undefined;
  /**
   * About how many locks a page has, from 1 to 10,000. Redis looks at this many keys of any kind in one step, and
   * serves other clients between the steps.
   * @default 100
   */
  limit?: number;
  /** The name of one of the module's `backends`. @default the module's own */
  backend?: string;
}

interface ListSettings {
  readonly cursor: string;
  readonly limit: number;
  readonly backend: string | undefined;
}

const MOST = 10_000;
const setting = settingOf<ListSettings>();

const LIST_OPTIONS = new OptionTable<LockListOptions, ListSettings>(
  lockOption,
  'option of list()',
  '',
  { cursor: '', limit: 100, backend: undefined },
  {
    cursor: setting('cursor', text('the cursor of the page before')),
    limit: setting('limit', (value, option, checks) => {
      const limit = wholeNumber(value, option, checks);
      if (limit > MOST) throw checks.refused(option, value, `a whole number up to ${MOST}, and take several pages`);
      return limit;
    }),
    backend: setting('backend', text('the name of a backend')),
  },
);

/** @throws LockConfigError with the option, the value and the remedy */
export function listSettings(pattern: string, options: LockListOptions): ListSettings {
  if (typeof pattern !== 'string' || pattern === '' || !pattern.isWellFormed()) {
    throw lockOption.refused('pattern', pattern, 'a glob, such as "order:*"');
  }
  return LIST_OPTIONS.settings(lockOption.object('options', options, 'an object of options of list(), or none'));
}
