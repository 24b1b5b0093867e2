import { Stream } from 'node:stream';
import { StreamableFile } from '@nestjs/common';
import { isObservable } from 'rxjs';

/**
 * What kind of stream a method has returned: something that can be read once, or has not begun. `undefined` for a
 * value.
 */
export function streamKindOf(result: unknown): string | undefined {
  if (typeof result !== 'object' || result === null) return undefined;
  if (isObservable(result)) return 'an Observable';
  if (result instanceof StreamableFile) return 'a StreamableFile';
  if (result instanceof Response) return 'a Response';
  return result instanceof Stream || Symbol.asyncIterator in result ? 'a stream' : undefined;
}
