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

it('resolves other options with every call, as they may have changed', () => {
  const options = { ttl: 1_000 };
  const service = resolver();
  expect(service.settingsOf(options).ttl).toBe(1_000);
  options.ttl = 2_000;
  expect(service.settingsOf(options).ttl).toBe(2_000);
});
