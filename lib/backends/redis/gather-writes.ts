import type { Writable } from 'node:stream';

/** More than this (characters) is not kept back. */
const MOST_WAITING = 64 * 1_024;

/**
 * Writes the commands of one turn of the event loop to the socket together: a write to a socket is a system call, and
 * costs more than a command does otherwise. The first command of a turn is written at once, so that one alone never waits.
 */
export function gatherWrites(socket: Writable): void {
  const write = socket.write.bind(socket) as (chunk: unknown, ...rest: unknown[]) => boolean;
  let waiting = '';
  let scheduled = false;
  const flush = () => {
    if (waiting === '') return;
    const text = waiting;
    waiting = '';
    // What a closed connection did not take is sent again by the client.
    if (socket.writable) write(text);
  };
  const endTurn = () => {
    scheduled = false;
    flush();
  };
  socket.write = (chunk: unknown, ...rest: unknown[]) => {
    if (typeof chunk !== 'string' || rest.length > 0) {
      flush();
      return write(chunk, ...rest);
    }
    if (!scheduled) {
      scheduled = true;
      setImmediate(endTurn);
      return write(chunk);
    }
    waiting += chunk;
    if (waiting.length > MOST_WAITING) flush();
    return true;
  };
}
