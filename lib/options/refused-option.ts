/** The error of those who read the option: of the locks or of the cache. */
export type ConfigErrorClass<Refusal extends Error = Error> = new (message: string) => Refusal;

/** Names the option, the value received and the remedy. */
export function refusedOption<Refusal extends Error>(
  ConfigError: ConfigErrorClass<Refusal>,
  option: string,
  value: unknown,
  remedy: string,
): Refusal {
  const shown = typeof value === 'string' ? `"${value}"` : String(value);
  return new ConfigError(`Option "${option}" is ${shown}; give ${remedy}`);
}
