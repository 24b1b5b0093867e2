import { LONGEST_DELAY } from './longest-delay.js';

let waiting = 0;
let timer: NodeJS.Timeout | undefined;

/** Keeps the process alive until as many calls of `mayEnd`: what it waits for may come over an unref'd socket. */
export function mustNotEnd(): void {
  waiting += 1;
  if (waiting > 1) return;
  timer ??= setInterval(() => {}, LONGEST_DELAY);
  timer.ref();
}

/** Ends one `mustNotEnd`. */
export function mayEnd(): void {
  waiting -= 1;
  // Not cleared: to make it anew costs more, and nearly every call that takes a lock comes here.
  if (waiting === 0) timer?.unref();
}
