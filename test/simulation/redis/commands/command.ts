// What a command is, and how it reads its arguments.

import type { Connection, RedisModel } from '../redis-model.js';
import { Refused, type Reply } from '../replies.js';

/** A script has no connection. `undefined`: the answers are pushed. */
export type Command = (
  redis: RedisModel,
  args: readonly string[],
  connection: Connection | undefined,
) => Reply | undefined;

export type Commands = Readonly<Record<string, Command>>;

/** As Redis reads it: no sign but a minus, no zeros before it. */
export function whole(text: string | undefined): number {
  if (text === undefined || !/^(?:0|-?[1-9]\d*)$/.test(text)) {
    throw new Refused('ERR value is not an integer or out of range');
  }
  return Number(text);
}

export function number(text: string | undefined, refusal = 'ERR value is not a valid float'): number {
  const infinite = /^([+-]?)inf(?:inity)?$/i.exec(text ?? '');
  if (infinite) return infinite[1] === '-' ? -Infinity : Infinity;
  if (text === undefined || text.trim() !== text || text === '' || Number.isNaN(Number(text))) {
    throw new Refused(refusal);
  }
  return Number(text);
}

/** For what Redis can do and the model cannot: the model never answers something else instead. */
export function notModelled(what: string): never {
  throw new Error(`The model of Redis does not know ${what}`);
}

/** The places from `start` to `stop`, which count from the end where they are negative. */
export function range(length: number, start: string | undefined, stop: string | undefined): [from: number, to: number] {
  const place = (text: string | undefined) => {
    const index = whole(text);
    return index < 0 ? length + index : index;
  };
  return [Math.max(0, place(start)), Math.max(0, Math.min(length, place(stop) + 1))];
}

/** A pattern of KEYS and SCAN. */
export function globToRegExp(glob: string): RegExp {
  const source = glob.replaceAll(
    /\\(.)|\[(\^?)((?:\\.|[^\]])*)\]|[*?]|[.+^${}()|\]\\/]/gs,
    (part, escaped, not, set) => {
      if (escaped !== undefined) return escapeOf(String(escaped));
      if (set !== undefined) return `[${String(not)}${String(set).replaceAll('[', '\\[')}]`;
      if (part === '*') return '.*';
      return part === '?' ? '.' : escapeOf(part);
    },
  );
  return new RegExp(`^${source}$`, 's');
}

function escapeOf(character: string): string {
  return /[\w\s]/.test(character) ? character : `\\${character}`;
}
