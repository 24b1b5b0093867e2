// What all functions of the lease table are written with, those that hand a lock on, and those of who wants a lock.

/** `clock` in microseconds since 1970: a fencing token is at least that. */
export function microsOf(clock: string): string {
  return `(extract(epoch FROM ${clock}) * 1000000)::bigint`;
}

/** The longest lease (ms), which is the largest "int"; one ends later where the clock of the server was set back. */
export const LONGEST_LEASE = 2_147_483_647;

/** Whole milliseconds of an interval. */
export function millisecondsOf(interval: string): string {
  return `least(floor(extract(epoch FROM ${interval}) * 1000), ${LONGEST_LEASE})::int`;
}

/** A new end of a lease, `ms` from now. */
export function fromNow(ms: string, clock = 'clock_timestamp()'): string {
  return `${clock} + ${ms} * interval '1 ms'`;
}

/** How many tokens come with a hand-over: enough for one turn of a process. */
const TURN_TOKENS = 128;
/** A waiter without a heartbeat for this time is dropped: five times the longest period of heartbeats. */
const WAITER_TTL = `interval '5 s'`;
/** A waiter without a heartbeat for this time is passed over: longer than the longest period of heartbeats. */
export const SILENCE = `interval '1500 ms'`;
/** How many places at the head of the queue are near: their turn may come before their next heartbeat. */
const NEAR = 8;

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

/** What `enqueue`, `beat` and `requeue` answer; `status`: 1 granted, 0 busy, -1 gone or not the owner. */
const ANSWER = `OUT status int, OUT token bigint, OUT tokens int, OUT remaining int, OUT others int, OUT place int, OUT holder text`;

/** Grants the lock to its owner again: further tokens, and what is left of the lease. */
const grantedAgain = (schema: string) => `
    token := greatest(lock.unissued, ${microsOf('now_')});
    tokens := greatest(1, least(${TURN_TOKENS}, ${microsOf('now_')} - lock.unissued));
    UPDATE ${schema}.locks AS l SET unissued = token + tokens WHERE l.key = _key;
    status := 1; remaining := ${millisecondsOf('lock.expires_at - now_')}; others := lock.waiting; holder := lock.owner;
    RETURN;`;

/**
 * The calls of those who want a lock, by the rules of docs/protocol.md. Each call may be sent twice.
 *
 * - `enqueue`: takes a free lock that nobody waits for; else hands a free lock on, and queues the ticket. Without a
 *   claim it never queues.
 * - `beat`: the heartbeat of a waiter. Hands a free lock on; else tells the owner again that a process waits.
 * - `requeue`: gives the lock of `_ticket` to the first waiter, and queues `_again` behind the others.
 * - `acquire`: takes all of several locks, or none; never queues. `_keys` are in ascending order.
 */
export function waiterSql(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.enqueue_v1(_key bytea, _ticket text, _ttl int, _claim int, _name text, ${ANSWER})
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz := clock_timestamp();
  lock ${schema}.locks;
  next_ record;
BEGIN
  UPDATE ${schema}.locks AS l
    SET owner = _ticket, expires_at = ${fromNow('_ttl')},
        unissued = greatest(l.unissued, ${microsOf('clock_timestamp()')}) + 1
    WHERE l.key = _key AND l.waiting = 0 AND l.expires_at <= clock_timestamp()
    RETURNING 1, l.unissued - 1, 1, _ttl, 0 INTO status, token, tokens, remaining, others;
  IF FOUND THEN RETURN; END IF;
  LOOP
    SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = _key FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO ${schema}.locks AS l (key, owner, expires_at, unissued)
      VALUES (_key, _ticket, ${fromNow('_ttl')}, ${microsOf('now_')} + 1)
      ON CONFLICT DO NOTHING RETURNING 1, l.unissued - 1, 1, _ttl, 0 INTO status, token, tokens, remaining, others;
    IF FOUND THEN RETURN; END IF;
  END LOOP;
  now_ := clock_timestamp();
  IF lock.owner = _ticket AND lock.expires_at > now_ THEN${grantedAgain(schema)}
  END IF;
  IF lock.expires_at <= now_ THEN
    SELECT * INTO next_ FROM ${schema}.hand_on_v1(_key, lock.unissued, lock.waiting, _ticket) AS h;
    IF next_.successor = _ticket THEN
      status := 1; token := next_.first_token; tokens := next_.tokens; remaining := next_.lease; others := next_.others;
      RETURN;
    END IF;
    lock.waiting := next_.others;
    IF next_.successor IS NULL THEN
      -- None of the remaining waiters counts as alive.
      lock.owner := _ticket; lock.expires_at := ${fromNow('_ttl', 'now_')};
      UPDATE ${schema}.locks AS l SET owner = lock.owner, expires_at = lock.expires_at WHERE l.key = _key;${grantedAgain(schema)}
    END IF;
    lock.owner := next_.successor;
    lock.expires_at := ${fromNow('next_.lease', 'now_')};
    lock.unissued := next_.first_token + next_.tokens;
  END IF;
  place := 0;
  IF _claim IS NOT NULL THEN
    IF lock.waiting > 0 THEN
      UPDATE ${schema}.waiters AS w SET seen_at = now_ WHERE w.key = _key AND w.ticket = _ticket;
    END IF;
    IF lock.waiting = 0 OR NOT FOUND THEN
      INSERT INTO ${schema}.waiters (key, ticket, claim, name, seen_at) VALUES (_key, _ticket, _claim, _name, now_);
      UPDATE ${schema}.locks AS l SET waiting = lock.waiting + 1 WHERE l.key = _key;
    END IF;
    IF lock.waiting = 0 THEN
      place := 1;
      PERFORM ${schema}.tell_v1('wanted', lock.owner, ' ' || _name);
    ELSE
      place := ${schema}.place_v1(_key, _ticket);
    END IF;
  END IF;
  status := 0; token := lock.unissued; remaining := ${millisecondsOf('lock.expires_at - now_')}; holder := lock.owner;
END $$;

CREATE OR REPLACE FUNCTION ${schema}.beat_v1(_key bytea, _ticket text, ${ANSWER})
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock ${schema}.locks;
  next_ record;
  name_ text;
BEGIN
  status := -1;
  SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = _key FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  now_ := clock_timestamp();
  IF lock.owner = _ticket AND lock.expires_at > now_ THEN${grantedAgain(schema)}
  END IF;
  UPDATE ${schema}.waiters AS w SET seen_at = now_ WHERE w.key = _key AND w.ticket = _ticket RETURNING w.name INTO name_;
  IF NOT FOUND THEN RETURN; END IF;
  IF lock.expires_at <= now_ THEN
    SELECT * INTO next_ FROM ${schema}.hand_on_v1(_key, lock.unissued, lock.waiting, _ticket) AS h;
    token := next_.first_token; tokens := next_.tokens; remaining := next_.lease; others := next_.others;
    IF next_.successor = _ticket THEN status := 1; RETURN; END IF;
    token := token + tokens; holder := next_.successor;
  ELSE
    PERFORM ${schema}.tell_v1('wanted', lock.owner, ' ' || name_);
    token := lock.unissued; remaining := ${millisecondsOf('lock.expires_at - now_')}; holder := lock.owner;
  END IF;
  status := 0; place := ${schema}.place_v1(_key, _ticket);
END $$;

CREATE OR REPLACE FUNCTION ${schema}.requeue_v1(_key bytea, _ticket text, _again text, _claim int, _name text, ${ANSWER})
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock ${schema}.locks;
  next_ record;
BEGIN
  status := -1;
  SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = _key FOR UPDATE;
  now_ := clock_timestamp();
  IF NOT FOUND OR lock.owner <> _ticket OR lock.expires_at <= now_ THEN RETURN; END IF;
  INSERT INTO ${schema}.waiters (key, ticket, claim, name, seen_at) VALUES (_key, _again, _claim, _name, now_);
  SELECT * INTO next_ FROM ${schema}.hand_on_v1(_key, lock.unissued, lock.waiting + 1, _again) AS h;
  token := next_.first_token; tokens := next_.tokens; remaining := next_.lease; others := next_.others;
  IF next_.successor = _again THEN status := 1; RETURN; END IF;
  status := 0; token := token + tokens; holder := next_.successor; place := ${schema}.place_v1(_key, _again);
END $$;

CREATE OR REPLACE FUNCTION ${schema}.acquire_v1(
  _keys bytea[], _ticket text, _ttl int, _least bigint,
  OUT status int, OUT token bigint, OUT remaining int, OUT busy_at int, OUT holder text
) LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz := clock_timestamp();
  key_ bytea;
  lock ${schema}.locks;
  next_ record;
BEGIN
  token := greatest(_least, ${microsOf('now_')});
  FOR i IN 1 .. cardinality(_keys) LOOP
    key_ := _keys[i];
    LOOP
      SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = key_ FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO ${schema}.locks (key, owner, expires_at, unissued) VALUES (key_, '', now_, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    now_ := clock_timestamp();
    IF lock.expires_at <= now_ AND lock.waiting > 0 THEN
      SELECT * INTO next_ FROM ${schema}.hand_on_v1(key_, lock.unissued, lock.waiting, '') AS h;
      IF next_.successor IS NOT NULL THEN
        lock.owner := next_.successor; lock.expires_at := ${fromNow('next_.lease', 'now_')};
      END IF;
    END IF;
    IF lock.expires_at > now_ AND lock.owner <> _ticket THEN
      status := 0; busy_at := i; holder := lock.owner;
      remaining := ${millisecondsOf('lock.expires_at - now_')};
      RETURN;
    END IF;
    token := greatest(token, lock.unissued);
  END LOOP;
  UPDATE ${schema}.locks AS l
    SET owner = _ticket, expires_at = greatest(l.expires_at, ${fromNow('_ttl')}), unissued = acquire_v1.token + 1
    WHERE l.key = ANY (_keys);
  status := 1; remaining := _ttl;
END $$;
`;
}
