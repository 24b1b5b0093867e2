import { existsSync, readdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { requireServer } from '../../../sample-app/servers/programs.js';

const LIBRARIES = '/usr/lib';
/** For programs of several threads. */
const FILE = 'faketime/libfaketimeMT.so.1';

/** Environment variables. */
type Environment = Record<string, string>;

/**
 * The environment of a process whose wall clock is `seconds` ahead of the machine's, as libfaketime makes it. Its
 * monotonic clock is right.
 */
export function clockAhead(seconds: number): Environment {
  return { ...preloaded(), FAKETIME: offsetOf(seconds) };
}

/** The same for a process whose clock {@link setClock} sets while it runs. */
export function clockByFile(file: string): Environment {
  setClock(file, 0);
  return { ...preloaded(), FAKETIME_TIMESTAMP_FILE: file, FAKETIME_NO_CACHE: '1' };
}

/** Sets the clock of the process of this file to `seconds` ahead of the machine's. */
export function setClock(file: string, seconds: number): void {
  // libfaketime ends a process that finds its file empty.
  writeFileSync(`${file}.next`, offsetOf(seconds));
  renameSync(`${file}.next`, file);
}

/** The environment of a process whose clock stands still, until {@link setStillClock} sets it to another time. */
export function clockStandsStill(file: string, micros: number): Environment {
  setStillClock(file, micros);
  return { ...preloaded(), FAKETIME_TIMESTAMP_FILE: file, FAKETIME_NO_CACHE: '1', TZ: 'UTC' };
}

/** `micros`: µs of Unix time. */
export function setStillClock(file: string, micros: number): void {
  const seconds = new Date(Math.floor(micros / 1_000_000) * 1_000).toISOString().slice(0, 19).replace('T', ' ');
  // libfaketime reads the fraction as a floating-point number: half a µs more, so that it rounds down to this one.
  writeFileSync(`${file}.next`, `${seconds}.${String(micros % 1_000_000).padStart(6, '0')}5`);
  renameSync(`${file}.next`, file);
}

function offsetOf(seconds: number): string {
  return `${seconds < 0 ? '' : '+'}${seconds}s`;
}

function preloaded(): Environment {
  const library = requireServer({
    name: 'libfaketime',
    kind: 'library',
    packages: ['libfaketime'],
    find: findLibrary,
    remedy: 'Install it: apt-get install libfaketime (as root).',
  });
  // jemalloc, which Debian links to Redis, asks for the time before libfaketime can tell it; the C library does not.
  return { LD_PRELOAD: `${library}:libc.so.6`, DONT_FAKE_MONOTONIC: '1' };
}

function findLibrary(): string | undefined {
  if (!existsSync(LIBRARIES)) return undefined;
  const folders = ['', ...readdirSync(LIBRARIES)];
  return folders.map((folder) => join(LIBRARIES, folder, FILE)).find((path) => existsSync(path));
}
