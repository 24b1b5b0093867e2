BEGIN;

CREATE SCHEMA IF NOT EXISTS nest_redis_lock;

-- One row for each lock name. The lock is free when expires_at has passed.
CREATE TABLE IF NOT EXISTS nest_redis_lock.locks (
  key bytea PRIMARY KEY,
  owner text NOT NULL,              -- the ticket; empty after a release
  expires_at timestamptz NOT NULL,
  unissued bigint NOT NULL,         -- the first fencing token not yet issued
  waiting int NOT NULL DEFAULT 0    -- how many rows of "waiters" have this key
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The queue of a lock. A statement that changes it has locked the row of "locks".
CREATE TABLE IF NOT EXISTS nest_redis_lock.waiters (
  key bytea NOT NULL,
  arrival bigint GENERATED ALWAYS AS IDENTITY,
  ticket text NOT NULL,
  claim int NOT NULL,               -- the lease of its grant, in ms
  name text NOT NULL,               -- the name of the lock as a JSON string, for messages
  seen_at timestamptz NOT NULL,     -- its last heartbeat
  PRIMARY KEY (key, arrival)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What "inspect" says of the process that owns a lock.
CREATE TABLE IF NOT EXISTS nest_redis_lock.labels (
  process text PRIMARY KEY,
  label text NOT NULL,
  expires_at timestamptz NOT NULL
);

CREATE OR REPLACE FUNCTION nest_redis_lock.tell_v1(_kind text, _ticket text, _rest text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  process text := substring(_ticket FROM '^(.+):[0-9]+$');
  payload text := _kind || ' ' || _ticket || _rest;
BEGIN
  IF octet_length(process) < 48 AND octet_length(payload) < 8000 THEN
    PERFORM pg_notify('nest_redis_lock:' || process, payload);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.hand_on_v1(
  _key bytea, _unissued bigint, _waiting int, _caller text,
  OUT successor text, OUT first_token bigint, OUT tokens int, OUT lease int, OUT others int
) LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz := clock_timestamp();
  candidate nest_redis_lock.waiters;
BEGIN
  others := _waiting;
  FOR candidate IN SELECT * FROM nest_redis_lock.waiters AS w WHERE w.key = _key ORDER BY w.arrival LOOP
    CONTINUE WHEN candidate.ticket <> _caller
      AND candidate.seen_at > now_ - interval '5 s' AND candidate.seen_at <= now_ - interval '1500 ms';
    DELETE FROM nest_redis_lock.waiters AS w WHERE w.key = _key AND w.arrival = candidate.arrival;
    others := others - 1;
    CONTINUE WHEN candidate.ticket <> _caller AND candidate.seen_at <= now_ - interval '5 s';
    successor := candidate.ticket;
    lease := candidate.claim;
    first_token := greatest(_unissued, (extract(epoch FROM now_) * 1000000)::bigint);
    tokens := greatest(1, least(128, (extract(epoch FROM now_) * 1000000)::bigint - _unissued));
    UPDATE nest_redis_lock.locks AS l
      SET owner = successor, expires_at = now_ + lease * interval '1 ms', unissued = first_token + tokens, waiting = others
      WHERE l.key = _key;
    IF successor <> _caller THEN
      PERFORM nest_redis_lock.tell_v1('grant', successor, format(' %s %s %s %s %s', first_token, tokens, lease, others, candidate.name));
    END IF;
    RETURN;
  END LOOP;
  UPDATE nest_redis_lock.locks AS l SET owner = '', expires_at = least(l.expires_at, now_), waiting = others WHERE l.key = _key;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.place_v1(_key bytea, _ticket text) RETURNS int
LANGUAGE sql AS $$
  SELECT CASE count(*) WHEN 0 THEN 1 WHEN 8 THEN 0 ELSE 2 END FROM (
    SELECT 1 FROM nest_redis_lock.waiters AS w
    WHERE w.key = _key
      AND w.arrival < (SELECT mine.arrival FROM nest_redis_lock.waiters AS mine WHERE mine.key = _key AND mine.ticket = _ticket)
    LIMIT 8
  ) AS earlier
$$;

CREATE OR REPLACE FUNCTION nest_redis_lock.enqueue_v1(_key bytea, _ticket text, _ttl int, _claim int, _name text, OUT status int, OUT token bigint, OUT tokens int, OUT remaining int, OUT others int, OUT place int, OUT holder text)
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz := clock_timestamp();
  lock nest_redis_lock.locks;
  next_ record;
BEGIN
  UPDATE nest_redis_lock.locks AS l
    SET owner = _ticket, expires_at = clock_timestamp() + _ttl * interval '1 ms',
        unissued = greatest(l.unissued, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + 1
    WHERE l.key = _key AND l.waiting = 0 AND l.expires_at <= clock_timestamp()
    RETURNING 1, l.unissued - 1, 1, _ttl, 0 INTO status, token, tokens, remaining, others;
  IF FOUND THEN RETURN; END IF;
  LOOP
    SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = _key FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO nest_redis_lock.locks AS l (key, owner, expires_at, unissued)
      VALUES (_key, _ticket, clock_timestamp() + _ttl * interval '1 ms', (extract(epoch FROM now_) * 1000000)::bigint + 1)
      ON CONFLICT DO NOTHING RETURNING 1, l.unissued - 1, 1, _ttl, 0 INTO status, token, tokens, remaining, others;
    IF FOUND THEN RETURN; END IF;
  END LOOP;
  now_ := clock_timestamp();
  IF lock.owner = _ticket AND lock.expires_at > now_ THEN
    token := greatest(lock.unissued, (extract(epoch FROM now_) * 1000000)::bigint);
    tokens := greatest(1, least(128, (extract(epoch FROM now_) * 1000000)::bigint - lock.unissued));
    UPDATE nest_redis_lock.locks AS l SET unissued = token + tokens WHERE l.key = _key;
    status := 1; remaining := least(floor(extract(epoch FROM lock.expires_at - now_) * 1000), 2147483647)::int; others := lock.waiting; holder := lock.owner;
    RETURN;
  END IF;
  IF lock.expires_at <= now_ THEN
    SELECT * INTO next_ FROM nest_redis_lock.hand_on_v1(_key, lock.unissued, lock.waiting, _ticket) AS h;
    IF next_.successor = _ticket THEN
      status := 1; token := next_.first_token; tokens := next_.tokens; remaining := next_.lease; others := next_.others;
      RETURN;
    END IF;
    lock.waiting := next_.others;
    IF next_.successor IS NULL THEN
      -- None of the remaining waiters counts as alive.
      lock.owner := _ticket; lock.expires_at := now_ + _ttl * interval '1 ms';
      UPDATE nest_redis_lock.locks AS l SET owner = lock.owner, expires_at = lock.expires_at WHERE l.key = _key;
    token := greatest(lock.unissued, (extract(epoch FROM now_) * 1000000)::bigint);
    tokens := greatest(1, least(128, (extract(epoch FROM now_) * 1000000)::bigint - lock.unissued));
    UPDATE nest_redis_lock.locks AS l SET unissued = token + tokens WHERE l.key = _key;
    status := 1; remaining := least(floor(extract(epoch FROM lock.expires_at - now_) * 1000), 2147483647)::int; others := lock.waiting; holder := lock.owner;
    RETURN;
    END IF;
    lock.owner := next_.successor;
    lock.expires_at := now_ + next_.lease * interval '1 ms';
    lock.unissued := next_.first_token + next_.tokens;
  END IF;
  place := 0;
  IF _claim IS NOT NULL THEN
    IF lock.waiting > 0 THEN
      UPDATE nest_redis_lock.waiters AS w SET seen_at = now_ WHERE w.key = _key AND w.ticket = _ticket;
    END IF;
    IF lock.waiting = 0 OR NOT FOUND THEN
      INSERT INTO nest_redis_lock.waiters (key, ticket, claim, name, seen_at) VALUES (_key, _ticket, _claim, _name, now_);
      UPDATE nest_redis_lock.locks AS l SET waiting = lock.waiting + 1 WHERE l.key = _key;
    END IF;
    IF lock.waiting = 0 THEN
      place := 1;
      PERFORM nest_redis_lock.tell_v1('wanted', lock.owner, ' ' || _name);
    ELSE
      place := nest_redis_lock.place_v1(_key, _ticket);
    END IF;
  END IF;
  status := 0; token := lock.unissued; remaining := least(floor(extract(epoch FROM lock.expires_at - now_) * 1000), 2147483647)::int; holder := lock.owner;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.beat_v1(_key bytea, _ticket text, OUT status int, OUT token bigint, OUT tokens int, OUT remaining int, OUT others int, OUT place int, OUT holder text)
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock nest_redis_lock.locks;
  next_ record;
  name_ text;
BEGIN
  status := -1;
  SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = _key FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  now_ := clock_timestamp();
  IF lock.owner = _ticket AND lock.expires_at > now_ THEN
    token := greatest(lock.unissued, (extract(epoch FROM now_) * 1000000)::bigint);
    tokens := greatest(1, least(128, (extract(epoch FROM now_) * 1000000)::bigint - lock.unissued));
    UPDATE nest_redis_lock.locks AS l SET unissued = token + tokens WHERE l.key = _key;
    status := 1; remaining := least(floor(extract(epoch FROM lock.expires_at - now_) * 1000), 2147483647)::int; others := lock.waiting; holder := lock.owner;
    RETURN;
  END IF;
  UPDATE nest_redis_lock.waiters AS w SET seen_at = now_ WHERE w.key = _key AND w.ticket = _ticket RETURNING w.name INTO name_;
  IF NOT FOUND THEN RETURN; END IF;
  IF lock.expires_at <= now_ THEN
    SELECT * INTO next_ FROM nest_redis_lock.hand_on_v1(_key, lock.unissued, lock.waiting, _ticket) AS h;
    token := next_.first_token; tokens := next_.tokens; remaining := next_.lease; others := next_.others;
    IF next_.successor = _ticket THEN status := 1; RETURN; END IF;
    token := token + tokens; holder := next_.successor;
  ELSE
    PERFORM nest_redis_lock.tell_v1('wanted', lock.owner, ' ' || name_);
    token := lock.unissued; remaining := least(floor(extract(epoch FROM lock.expires_at - now_) * 1000), 2147483647)::int; holder := lock.owner;
  END IF;
  status := 0; place := nest_redis_lock.place_v1(_key, _ticket);
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.requeue_v1(_key bytea, _ticket text, _again text, _claim int, _name text, OUT status int, OUT token bigint, OUT tokens int, OUT remaining int, OUT others int, OUT place int, OUT holder text)
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock nest_redis_lock.locks;
  next_ record;
BEGIN
  status := -1;
  SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = _key FOR UPDATE;
  now_ := clock_timestamp();
  IF NOT FOUND OR lock.owner <> _ticket OR lock.expires_at <= now_ THEN RETURN; END IF;
  INSERT INTO nest_redis_lock.waiters (key, ticket, claim, name, seen_at) VALUES (_key, _again, _claim, _name, now_);
  SELECT * INTO next_ FROM nest_redis_lock.hand_on_v1(_key, lock.unissued, lock.waiting + 1, _again) AS h;
  token := next_.first_token; tokens := next_.tokens; remaining := next_.lease; others := next_.others;
  IF next_.successor = _again THEN status := 1; RETURN; END IF;
  status := 0; token := token + tokens; holder := next_.successor; place := nest_redis_lock.place_v1(_key, _again);
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.acquire_v1(
  _keys bytea[], _ticket text, _ttl int, _least bigint,
  OUT status int, OUT token bigint, OUT remaining int, OUT busy_at int, OUT holder text
) LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz := clock_timestamp();
  key_ bytea;
  lock nest_redis_lock.locks;
  next_ record;
BEGIN
  token := greatest(_least, (extract(epoch FROM now_) * 1000000)::bigint);
  FOR i IN 1 .. cardinality(_keys) LOOP
    key_ := _keys[i];
    LOOP
      SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = key_ FOR UPDATE;
      EXIT WHEN FOUND;
      INSERT INTO nest_redis_lock.locks (key, owner, expires_at, unissued) VALUES (key_, '', now_, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    now_ := clock_timestamp();
    IF lock.expires_at <= now_ AND lock.waiting > 0 THEN
      SELECT * INTO next_ FROM nest_redis_lock.hand_on_v1(key_, lock.unissued, lock.waiting, '') AS h;
      IF next_.successor IS NOT NULL THEN
        lock.owner := next_.successor; lock.expires_at := now_ + next_.lease * interval '1 ms';
      END IF;
    END IF;
    IF lock.expires_at > now_ AND lock.owner <> _ticket THEN
      status := 0; busy_at := i; holder := lock.owner;
      remaining := least(floor(extract(epoch FROM lock.expires_at - now_) * 1000), 2147483647)::int;
      RETURN;
    END IF;
    token := greatest(token, lock.unissued);
  END LOOP;
  UPDATE nest_redis_lock.locks AS l
    SET owner = _ticket, expires_at = greatest(l.expires_at, clock_timestamp() + _ttl * interval '1 ms'), unissued = acquire_v1.token + 1
    WHERE l.key = ANY (_keys);
  status := 1; remaining := _ttl;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.release_v1(_key bytea, _ticket text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock nest_redis_lock.locks;
  answer int := -1;
BEGIN
  UPDATE nest_redis_lock.locks AS l SET owner = '', expires_at = clock_timestamp()
    WHERE l.key = _key AND l.owner = _ticket AND l.waiting = 0 AND l.expires_at > clock_timestamp();
  IF FOUND THEN RETURN 1; END IF;
  SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = _key FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  now_ := clock_timestamp();
  IF lock.waiting > 0 THEN
    DELETE FROM nest_redis_lock.waiters AS w WHERE w.key = _key AND w.ticket = _ticket;
    IF FOUND THEN
      lock.waiting := lock.waiting - 1;
      UPDATE nest_redis_lock.locks AS l SET waiting = lock.waiting WHERE l.key = _key;
    END IF;
  END IF;
  IF lock.expires_at <= now_ THEN answer := 0;
  ELSIF lock.owner = _ticket THEN answer := 1;
  END IF;
  IF answer = 1 OR answer = 0 AND lock.waiting > 0 THEN
    PERFORM nest_redis_lock.hand_on_v1(_key, lock.unissued, lock.waiting, '');
  END IF;
  RETURN answer;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.keep_v1(_key bytea, _ticket text, _rest int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock nest_redis_lock.locks;
  first_ nest_redis_lock.waiters;
BEGIN
  SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = _key FOR UPDATE;
  now_ := clock_timestamp();
  IF NOT FOUND OR lock.expires_at <= now_ THEN RETURN 0; END IF;
  IF lock.owner <> _ticket THEN RETURN -1; END IF;
  lock.expires_at := least(lock.expires_at, now_ + _rest * interval '1 ms');
  UPDATE nest_redis_lock.locks AS l SET expires_at = lock.expires_at WHERE l.key = _key;
  IF lock.waiting > 0 THEN
    SELECT * INTO first_ FROM nest_redis_lock.waiters AS w
      WHERE w.key = _key AND w.seen_at > now_ - interval '1500 ms' ORDER BY w.arrival LIMIT 1;
    IF FOUND THEN
      PERFORM nest_redis_lock.tell_v1('ends', first_.ticket, format(' %s %s', least(floor(extract(epoch FROM lock.expires_at - now_) * 1000), 2147483647)::int, first_.name));
    END IF;
  END IF;
  RETURN 1;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.renew_v1(_key bytea, _ticket text, _ttl int, OUT remaining int, OUT others int)
LANGUAGE plpgsql AS $$
DECLARE
  ends timestamptz;
BEGIN
  UPDATE nest_redis_lock.locks AS l SET expires_at = greatest(l.expires_at, clock_timestamp() + _ttl * interval '1 ms')
    WHERE l.key = _key AND l.owner = _ticket AND l.expires_at > clock_timestamp()
    RETURNING l.expires_at, l.waiting INTO ends, others;
  -- The lease is at least `_ttl`, although a moment has passed since.
  remaining := CASE WHEN FOUND THEN greatest(_ttl, least(floor(extract(epoch FROM ends - clock_timestamp()) * 1000), 2147483647)::int) ELSE -1 END;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.mint_v1(_key bytea, _ticket text, _least bigint, OUT token bigint, OUT tokens int)
LANGUAGE plpgsql AS $$
DECLARE
  now_ timestamptz;
  lock nest_redis_lock.locks;
BEGIN
  SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = _key FOR UPDATE;
  now_ := clock_timestamp();
  IF NOT FOUND OR lock.owner <> _ticket OR lock.expires_at <= now_ THEN RETURN; END IF;
  token := greatest(lock.unissued, _least, (extract(epoch FROM now_) * 1000000)::bigint);
  tokens := greatest(1, least(1024, (extract(epoch FROM now_) * 1000000)::bigint - greatest(lock.unissued, _least)));
  UPDATE nest_redis_lock.locks AS l SET unissued = token + tokens WHERE l.key = _key;
END $$;

CREATE OR REPLACE FUNCTION nest_redis_lock.force_release_v1(_key bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  lock nest_redis_lock.locks;
BEGIN
  SELECT * INTO lock FROM nest_redis_lock.locks AS l WHERE l.key = _key FOR UPDATE;
  IF NOT FOUND OR lock.expires_at <= clock_timestamp() THEN RETURN NULL; END IF;
  PERFORM nest_redis_lock.tell_v1('revoked', lock.owner, '');
  PERFORM nest_redis_lock.hand_on_v1(_key, lock.unissued, lock.waiting, '');
  RETURN lock.owner;
END $$;

-- Deletes at most `_most` locks that were last used longer than `_idle` ago, with the waiters of processes that
-- have died. Where the clock has passed their tokens, these need no row: new ones begin at the clock. Returns how many.
CREATE OR REPLACE FUNCTION nest_redis_lock.sweep_v1(_idle interval, _most int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  idle bytea[];
  deleted int;
BEGIN
  SELECT array_agg(old.key) INTO idle FROM (
    SELECT l.key FROM nest_redis_lock.locks AS l
    WHERE l.expires_at < clock_timestamp() - _idle AND l.unissued <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    LIMIT _most FOR UPDATE SKIP LOCKED
  ) AS old;
  DELETE FROM nest_redis_lock.locks AS l WHERE l.key = ANY (idle) AND NOT EXISTS (
    SELECT 1 FROM nest_redis_lock.waiters AS w WHERE w.key = l.key AND w.seen_at > clock_timestamp() - interval '1 min'
  );
  GET DIAGNOSTICS deleted = ROW_COUNT;
  DELETE FROM nest_redis_lock.waiters AS w
    WHERE w.key = ANY (idle) AND NOT EXISTS (SELECT 1 FROM nest_redis_lock.locks AS l WHERE l.key = w.key);
  DELETE FROM nest_redis_lock.labels AS b WHERE b.expires_at < clock_timestamp();
  RETURN deleted;
END $$;

CREATE SCHEMA IF NOT EXISTS nest_redis_lock;

DO $$ BEGIN
  EXECUTE format(
    'CREATE SEQUENCE IF NOT EXISTS nest_redis_lock.tokens INCREMENT 1024 START %s CACHE 1',
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
  );
END $$;

-- Which ticket has a lock, as long as the session with this pid has it. Nothing of it need survive a crash.
CREATE UNLOGGED TABLE IF NOT EXISTS nest_redis_lock.holders (
  key bigint PRIMARY KEY,
  pid int NOT NULL,
  ticket text NOT NULL,
  unissued bigint NOT NULL
) WITH (fillfactor = 50);
COMMIT;
