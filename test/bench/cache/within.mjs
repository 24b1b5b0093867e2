/** What never answers must not end the benchmark. */
export class HangError extends Error {}

/** @throws HangError when the promise has not settled after the given ms */
export async function within(ms, promise) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new HangError(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}
