import { HEADER } from '../../contracts/value-header.js';
import { MORE, type Entry, type TagStamp } from './envelope.js';

/** Time, the mark of a serializer, and the rest as JSON. */
const HEAD = /^([0-9a-z]+)(?:\/[\w-]{8})?(.*)\n$/s;

/**
 * An envelope without its payload, from the first line of the stored data, whatever serializer made the payload.
 * `undefined` for data without an envelope, or of another version.
 */
export function openHead(head: Buffer): Entry | undefined {
  const [, time, json = ''] = HEAD.exec(head.toString('utf8', 2)) ?? [];
  if (head[0] !== HEADER.version || time === undefined) return undefined;
  const kind = (head[1] ?? 0) - HEADER.flags;
  const more = kind & MORE ? loadTimeAndTags(json) : {};
  if (!more) return undefined;
  const keptStale = (kind & HEADER.keptStale) !== 0;
  return { kind, expiresAt: parseInt(time, 36), keptStale, loadTime: more.t, tags: more.g, payload: Buffer.alloc(0) };
}

function loadTimeAndTags(json: string): { t?: number; g?: TagStamp } | undefined {
  try {
    return JSON.parse(json) as { t?: number; g?: TagStamp };
  } catch {
    return undefined;
  }
}
