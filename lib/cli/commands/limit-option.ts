import { InvalidArgumentError, Option } from 'commander';

/** About how many locks to show. */
export function limitOption(): Option {
  return new Option('--limit <count>', 'about how many locks to show, up to 10000').default(100).argParser((value) => {
    const limit = Number(value);
    if (Number.isInteger(limit) && limit >= 1 && limit <= 10_000) return limit;
    throw new InvalidArgumentError('Give a whole number from 1 to 10000.');
  });
}
