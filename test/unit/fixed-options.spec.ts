import { entrySettings } from '../../lib/cache/options/entry-settings.js';
import { fixedOptions, OptionResolver } from '../../lib/options/fixed-options.js';

/** Counts how often the option is read. */
function countedOptions() {
  let reads = 0;
  return {
    get ttl() {
      reads += 1;
      return 1_000;
    },
    get reads() {
      return reads;
    },
  };
}

const resolver = () => new OptionResolver((options: { readonly ttl: number }) => ({ ttl: options.ttl }));

it('resolves fixed options once for each service', () => {
  const options = fixedOptions(countedOptions());
  const [one, other] = [resolver(), resolver()];
  expect(one.settingsOf(options)).toBe(one.settingsOf(options));
  expect(options.reads).toBe(1);
  expect(other.settingsOf(options)).not.toBe(one.settingsOf(options));
  expect(options.reads).toBe(2);
});

it('resolves other options again once they have changed', () => {
  const options = { ttl: 1_000 };
  const service = resolver();
  expect(service.settingsOf(options).ttl).toBe(1_000);
  options.ttl = 2_000;
  expect(service.settingsOf(options).ttl).toBe(2_000);
});

it('resolves options that equal those of the call before only once', () => {
  const service = new OptionResolver((options: object) => ({ ...options }));
  const first = service.settingsOf({ ttl: 1, wait: 'x' });
  expect(service.settingsOf({ ttl: 1, wait: 'x' })).toBe(first);
  for (const other of [{ ttl: 1 }, { ttl: 1, wait: 'y' }, { ttl: 1, renew: 'x' }, { ttl: 1, wait: 'x', renew: true }]) {
    service.settingsOf({ ttl: 1, wait: 'x' });
    expect(service.settingsOf(other)).toEqual(other);
  }
});

it('resolves a list, an object and the accessors of a class with every call, as they may have changed', () => {
  const service = new OptionResolver((options: { tags?: readonly string[] }) => ({ tags: [...(options.tags ?? [])] }));
  const tags = ['one'];
  service.settingsOf({ tags });
  tags.push('other');
  expect(service.settingsOf({ tags }).tags).toEqual(['one', 'other']);

  class Options {
    get tags() {
      return tags;
    }
  }
  service.settingsOf({});
  expect(service.settingsOf(new Options()).tags).toEqual(tags);
});

it('lets the resolution refuse a value that is no object', () => {
  const service = new OptionResolver((options: object) => entrySettings(options));
  service.settingsOf({ ttl: 1 });
  for (const given of [null, 1, 'ttl'] as unknown as object[]) {
    expect(() => service.settingsOf(given)).toThrow(/Option "options" is .+; give an object of cache options/);
  }
});
