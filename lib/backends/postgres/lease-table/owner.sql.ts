import { fromNow, microsOf, millisecondsOf, SILENCE } from './waiter.sql.js';

/** How many tokens a process gets that asks for more: no other process wants the lock, or its turn is long. */
const MORE_TOKENS = 1_024;

/**
 * The calls of those who own a lock. Answers of `release` and `keep`: 1 the ticket owned it, 0 it was free, -1 another
 * ticket owns it.
 *
 * - `release`: frees the lock and hands it on; takes a waiting ticket out of the queue.
 * - `keep`: lets the lease end `_rest` ms from now, never later than before, and tells the first waiter.
 * - `renew`: lets the lease run for at least `_ttl` ms; `remaining` is -1 for a ticket that is not the owner.
 * - `mint`: reserves further tokens, from `_least` on; null for a ticket that is not the owner.
 * - `force_release`: frees the lock, tells its owner, hands it on, and returns the owner.
 */
export function ownerSql(schema: string): string {
  return `
CREATE OR REPLACE FUNCTION ${schema}.release_v1(_key bytea, _ticket text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock ${schema}.locks;
  answer int := -1;
BEGIN
  UPDATE ${schema}.locks AS l SET owner = '', expires_at = clock_timestamp()
    WHERE l.key = _key AND l.owner = _ticket AND l.waiting = 0 AND l.expires_at > clock_timestamp();
  IF FOUND THEN RETURN 1; END IF;
  SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = _key FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  now_ := clock_timestamp();
  IF lock.waiting > 0 THEN
    DELETE FROM ${schema}.waiters AS w WHERE w.key = _key AND w.ticket = _ticket;
    IF FOUND THEN
      lock.waiting := lock.waiting - 1;
      UPDATE ${schema}.locks AS l SET waiting = lock.waiting WHERE l.key = _key;
    END IF;
  END IF;
  IF lock.expires_at <= now_ THEN answer := 0;
  ELSIF lock.owner = _ticket THEN answer := 1;
  END IF;
  IF answer = 1 OR answer = 0 AND lock.waiting > 0 THEN
    PERFORM ${schema}.hand_on_v1(_key, lock.unissued, lock.waiting, '');
  END IF;
  RETURN answer;
END $$;

CREATE OR REPLACE FUNCTION ${schema}.keep_v1(_key bytea, _ticket text, _rest int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock ${schema}.locks;
  first_ ${schema}.waiters;
BEGIN
  SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = _key FOR UPDATE;
  now_ := clock_timestamp();
  IF NOT FOUND OR lock.expires_at <= now_ THEN RETURN 0; END IF;
  IF lock.owner <> _ticket THEN RETURN -1; END IF;
  lock.expires_at := least(lock.expires_at, ${fromNow('_rest', 'now_')});
  UPDATE ${schema}.locks AS l SET expires_at = lock.expires_at WHERE l.key = _key;
  IF lock.waiting > 0 THEN
    SELECT * INTO first_ FROM ${schema}.waiters AS w
      WHERE w.key = _key AND w.seen_at > now_ - ${SILENCE} ORDER BY w.arrival LIMIT 1;
    IF FOUND THEN
      PERFORM ${schema}.tell_v1('ends', first_.ticket, format(' %s %s', ${millisecondsOf('lock.expires_at - now_')}, first_.name));
    END IF;
  END IF;
  RETURN 1;
END $$;

CREATE OR REPLACE FUNCTION ${schema}.renew_v1(_key bytea, _ticket text, _ttl int, OUT remaining int, OUT others int)
LANGUAGE plpgsql AS $$
DECLARE
  ends timestamptz;
BEGIN
  UPDATE ${schema}.locks AS l SET expires_at = greatest(l.expires_at, ${fromNow('_ttl')})
    WHERE l.key = _key AND l.owner = _ticket AND l.expires_at > clock_timestamp()
    RETURNING l.expires_at, l.waiting INTO ends, others;
  -- The lease is at least \`_ttl\`, although a moment has passed since.
  remaining := CASE WHEN FOUND THEN greatest(_ttl, ${millisecondsOf('ends - clock_timestamp()')}) ELSE -1 END;
END $$;

CREATE OR REPLACE FUNCTION ${schema}.mint_v1(_key bytea, _ticket text, _least bigint, OUT token bigint, OUT tokens int)
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock ${schema}.locks;
BEGIN
  SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = _key FOR UPDATE;
  now_ := clock_timestamp();
  IF NOT FOUND OR lock.owner <> _ticket OR lock.expires_at <= now_ THEN RETURN; END IF;
  token := greatest(lock.unissued, _least, ${microsOf('now_')});
  tokens := greatest(1, least(${MORE_TOKENS}, ${microsOf('now_')} - greatest(lock.unissued, _least)));
  UPDATE ${schema}.locks AS l SET unissued = token + tokens WHERE l.key = _key;
END $$;

CREATE OR REPLACE FUNCTION ${schema}.force_release_v1(_key bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  lock ${schema}.locks;
BEGIN
  SELECT * INTO lock FROM ${schema}.locks AS l WHERE l.key = _key FOR UPDATE;
  IF NOT FOUND OR lock.expires_at <= clock_timestamp() THEN RETURN NULL; END IF;
  PERFORM ${schema}.tell_v1('revoked', lock.owner, '');
  PERFORM ${schema}.hand_on_v1(_key, lock.unissued, lock.waiting, '');
  RETURN lock.owner;
END $$;

-- Deletes at most \`_most\` locks that were last used longer than \`_idle\` ago, with the waiters of processes that
-- have died. Where the clock has passed their tokens, these need no row: new ones begin at the clock. Returns how many.
CREATE OR REPLACE FUNCTION ${schema}.sweep_v1(_idle interval, _most int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  idle bytea[];
  deleted int;
BEGIN
  SELECT array_agg(old.key) INTO idle FROM (
    SELECT l.key FROM ${schema}.locks AS l
    WHERE l.expires_at < clock_timestamp() - _idle AND l.unissued <= ${microsOf('clock_timestamp()')}
    LIMIT _most FOR UPDATE SKIP LOCKED
  ) AS old;
  DELETE FROM ${schema}.locks AS l WHERE l.key = ANY (idle) AND NOT EXISTS (
    SELECT 1 FROM ${schema}.waiters AS w WHERE w.key = l.key AND w.seen_at > clock_timestamp() - interval '1 min'
  );
  GET DIAGNOSTICS deleted = ROW_COUNT;
  DELETE FROM ${schema}.waiters AS w
    WHERE w.key = ANY (idle) AND NOT EXISTS (SELECT 1 FROM ${schema}.locks AS l WHERE l.key = w.key);
  DELETE FROM ${schema}.labels AS b WHERE b.expires_at < clock_timestamp();
  RETURN deleted;
END $$;
`;
}
