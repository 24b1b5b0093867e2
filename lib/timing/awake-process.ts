import { LONGEST_DELAY } from './clock.js';

/** Made here, and not by a call: it would keep what the async context of the first one has for ever. */
const timer = setInterval(() => {}, LONGEST_DELAY).unref();
let waiting = 0;

/** Keeps the process alive until as many calls of `mayEnd`: what it waits for may come over an unref'd socket. */
export function mustNotEnd(): void {
  waiting += 1;
  if (waiting === 1) timer.ref();
}

/** Ends one `mustNotEnd`. */
export function mayEnd(): void {
  waiting -= 1;
  if (waiting === 0) timer.unref();
}
