/** How many tokens come with a hand-over: enough for one turn of a process. */
export const TURN_TOKENS = 128;
/** A waiter without a heartbeat for this time is dropped: five times the longest period of heartbeats. */
const WAITER_TTL = `interval '5 s'`;
/** A waiter without a heartbeat for this time is passed over: longer than the longest period of heartbeats. */
export const SILENCE = `interval '1500 ms'`;
/** How many places at the head of the queue are near: their turn may come before their next heartbeat. */
const NEAR = 8;

/** `clock` in microseconds since 1970: a fencing token is at least that. */
export function microsOf(clock: string): string {
  return `(extract(epoch FROM ${clock}) * 1000000)::bigint`;
}

/** Whole milliseconds of an interval. */
export function millisecondsOf(interval: string): string {
  return `floor(extract(epoch FROM ${interval}) * 1000)::int`;
}

/** A new end of a lease, `ms` from now. */
export function fromNow(ms: string, clock = 'clock_timestamp()'): string {
  return `${clock} + ${ms} * interval '1 ms'`;
}

/**
 * Functions that others build on. Each is VOLATILE and reads the clock and the queue only when it has locked the row of
 * the lock: one statement would work on its snapshot, and miss a waiter who queued while it waited for the row.
 *
 * - `tell`: sends a message to the process of a ticket; none that PostgreSQL would refuse for its length.
 * - `hand_on`: gives the free lock to the first waiter that counts as alive, and sends it a message unless it is the
 *   caller. Without such a waiter the lock is free, and `successor` null. Writes `locks.waiting`.
 * - `place`: 1 for the first in the queue, 2 for one near its head, 0 for the others.
 */
export function queueSql(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.tell_v1(_kind text, _ticket text, _rest text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  process text := substring(_ticket FROM '^(.+):[0-9]+$');
  payload text := _kind || ' ' || _ticket || _rest;
BEGIN
  IF octet_length(process) < 48 AND octet_length(payload) < 8000 THEN
    PERFORM pg_notify('nest_redis_lock:' || process, payload);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION ${schema}.hand_on_v1(
  _key bytea, _unissued bigint, _waiting int, _caller text,
  OUT successor text, OUT first_token bigint, OUT tokens int, OUT lease int, OUT others int
) LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz := clock_timestamp();
  candidate ${schema}.waiters;
BEGIN
  others := _waiting;
  FOR candidate IN SELECT * FROM ${schema}.waiters AS w WHERE w.key = _key ORDER BY w.arrival LOOP
    CONTINUE WHEN candidate.ticket <> _caller
      AND candidate.seen_at > now_ - ${WAITER_TTL} AND candidate.seen_at <= now_ - ${SILENCE};
    DELETE FROM ${schema}.waiters AS w WHERE w.key = _key AND w.arrival = candidate.arrival;
    others := others - 1;
    CONTINUE WHEN candidate.ticket <> _caller AND candidate.seen_at <= now_ - ${WAITER_TTL};
    successor := candidate.ticket;
    lease := candidate.claim;
    first_token := greatest(_unissued, ${microsOf('now_')});
    tokens := greatest(1, least(${TURN_TOKENS}, ${microsOf('now_')} - _unissued));
    UPDATE ${schema}.locks AS l
      SET owner = successor, expires_at = ${fromNow('lease', 'now_')}, unissued = first_token + tokens, waiting = others
      WHERE l.key = _key;
    IF successor <> _caller THEN
      PERFORM ${schema}.tell_v1('grant', successor, format(' %s %s %s %s %s', first_token, tokens, lease, others, candidate.name));
    END IF;
    RETURN;
  END LOOP;
  UPDATE ${schema}.locks AS l SET owner = '', expires_at = least(l.expires_at, now_), waiting = others WHERE l.key = _key;
END $$;

CREATE OR REPLACE FUNCTION ${schema}.place_v1(_key bytea, _ticket text) RETURNS int
LANGUAGE sql AS $$
  SELECT CASE count(*) WHEN 0 THEN 1 WHEN ${NEAR} THEN 0 ELSE 2 END FROM (
    SELECT 1 FROM ${schema}.waiters AS w
    WHERE w.key = _key
      AND w.arrival < (SELECT mine.arrival FROM ${schema}.waiters AS mine WHERE mine.key = _key AND mine.ticket = _ticket)
    LIMIT ${NEAR}
  ) AS earlier
$$;
`;
}
