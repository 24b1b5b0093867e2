import { Stream } from 'node:stream';
import { StreamableFile } from '@nestjs/common';
import { isObservable } from 'rxjs';

/**
 * The kind of stream that a method has returned: something that can be read only once, or that has not begun.
 * `undefined` for a plain value.
 */
export function streamKindOf(result: unknown): string | undefined {
  if (typeof result !== 'object' || result === null) return undefined;
  if (isObservable(result)) return 'an Observable';
  if (result instanceof StreamableFile) return 'a StreamableFile';
  if (result instanceof Response) return 'a Response';
  return result instanceof Stream || Symbol.asyncIterator in result ? 'a stream' : undefined;
}
