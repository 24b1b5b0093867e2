/** Which run of a server answers, and since when it runs. */
export interface ServerStart {
  readonly runId: string;
  /** On our monotonic clock (ms). The server states whole seconds: this is the latest possible time. */
  readonly startedAt: number;
}

/**
 * What to go by when a server has said `now` when it started, and `before` on the last connection, which was lost at
 * `lostAt`. The server counts its uptime on its wall clock: a clock that was set forward shows a start too early.
 */
export function startAfter(now: ServerStart, before: ServerStart | undefined, lostAt: number): ServerStart {
  if (before === undefined) return now;
  if (before.runId === now.runId) return before;
  return { runId: now.runId, startedAt: Math.max(now.startedAt, lostAt) };
}

/** Reads the answer to `INFO server`; `undefined` where it lacks the fields. */
export function serverStart(info: string): ServerStart | undefined {
  const runId = /^run_id:(\w+)/m.exec(info)?.[1];
  const uptime = /^uptime_in_seconds:(\d+)/m.exec(info)?.[1];
  if (runId === undefined || uptime === undefined) return undefined;
  return { runId, startedAt: performance.now() - Number(uptime) * 1_000 };
}
