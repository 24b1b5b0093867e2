import { createRequire } from 'node:module';
import type * as Ioredis from 'ioredis';

type Library = typeof Ioredis;

/** The name of the option that gives a connection, and the error class for a wrong one. */
export interface ConnectionOption {
  readonly name: string;
  readonly ConfigError: new (message: string) => Error;
}

/**
 * The client library ioredis, loaded at first use: an application without Redis does not install it.
 * @throws the option's ConfigError where it is not installed
 */
export function ioredis({ name, ConfigError }: ConnectionOption): Library {
  const library = installedIoredis();
  if (library) return library;
  throw new ConfigError(`Option "${name}" needs the package ioredis, which is not installed: npm install ioredis`);
}

/** `undefined` where it is not installed. */
export function installedIoredis(): Library | undefined {
  try {
    // In the build, by a plain `require`, which bundlers of applications follow; these sources are ES modules.
    if (typeof require === 'function') return require('ioredis') as Library;
    return createRequire(import.meta.url)('ioredis') as Library;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'MODULE_NOT_FOUND' && message.includes("'ioredis'")) return undefined;
    throw error;
  }
}
