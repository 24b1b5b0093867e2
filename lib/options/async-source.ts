import { lockOption } from './option-checks.js';

/** What makes the options of `forRootAsync` of a module. @throws LockConfigError unless it is exactly one thing */
export function requireSource(options: unknown): void {
  const { useFactory, useClass, useExisting } = lockOption.object(
    'options',
    options,
    'an object with useFactory, useClass or useExisting',
  ) as Readonly<Record<string, unknown>>;
  const given = Object.entries({ useFactory, useClass, useExisting }).filter(([, source]) => source !== undefined);
  const names = given.map(([name]) => `"${name}"`).join(' and ') || 'none is';
  if (given.length !== 1)
    throw lockOption.conflict(`Options "useFactory", "useClass" and "useExisting": ${names} set; give exactly one`);
  const [[name, source] = ['', undefined]] = given;
  if (name !== 'useExisting') lockOption.require(typeof source === 'function', name, source, 'a function or a class');
}
