-- Quota: what a provider counts, reserved before a request and corrected by its answers. One row
-- for each counted key, and none for a unit: a ring of 65 slots holds how many units were taken in
-- which slice of time. A gate is a row that counts nothing and is open or closed.
CREATE TABLE quota_counts (
    -- Provider, dimension, window and the parts of the scope in one order; of a gate, what it closes.
    quota_key text PRIMARY KEY,
    provider text NOT NULL,
    -- Null of a gate. The parts of the scope are null where they are none.
    dimension text,
    org_id text,
    binding_id uuid,
    endpoint_class text,
    account text,
    base_url text,
    time_window text CONSTRAINT quota_window_is_known CHECK (
        time_window IN ('rolling', 'fixed', 'utc_day')),
    window_seconds integer,
    -- As the last request had it, and the highest that any had.
    limit_units integer,
    limit_max integer NOT NULL DEFAULT 0,
    -- The newest slot, counted since 1970; slot n stands at n % 65 + 1. `used` is all of it.
    head bigint NOT NULL DEFAULT 0,
    used integer[] NOT NULL DEFAULT array_fill(0, ARRAY[65]),
    lookups integer[] NOT NULL DEFAULT array_fill(0, ARRAY[65]),
    cursors integer[] NOT NULL DEFAULT array_fill(0, ARRAY[65]),
    -- What the provider itself said: a lower limit, and the end of its window.
    told_limit integer CONSTRAINT a_told_limit_lets_something_through CHECK (told_limit > 0),
    told_until timestamptz,
    resets_at timestamptz,
    reset_before timestamptz,
    closed_until timestamptz,
    closed_because text,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT a_count_has_its_window CHECK (
        (dimension IS NULL) = (time_window IS NULL)
        AND (time_window IS NULL) = (window_seconds IS NULL)),
    CONSTRAINT closed_with_its_reason CHECK ((closed_until IS NULL) = (closed_because IS NULL)),
    CONSTRAINT units_are_never_negative CHECK (
        0 <= ALL (used) AND 0 <= ALL (lookups) AND 0 <= ALL (cursors))
-- Each reservation writes its row anew; nothing that moves is in an index, so it stays in its page.
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON quota_counts TO oncefence_app;

-- How long a slot is. Of 65 the newest is not over yet, so a unit counts for 64 of them at least:
-- the window and 4 % of it, which is 40 ms or more. A request reaches the provider later than its
-- unit was reserved, and the next one may be quicker: without a margin the two would stand nearer
-- to each other there than here. One that left later than half of the margin covers is counted
-- from when it left (`quota_moved`). A day ends by the calendar, and so do its slots.
CREATE FUNCTION quota_slot_seconds(p_window text, p_seconds integer) RETURNS double precision
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE p_window WHEN 'utc_day' THEN p_seconds ELSE p_seconds * 1.04 END / 64.0::double precision
$$;

-- How many of `p_limit` one purpose may have. Where effects are counted with others, lookups and
-- cursors have a tenth each, and effects leave lookups a twentieth. oncefence.domain.quota.share
-- is its twin.
CREATE FUNCTION quota_share(p_limit integer, p_purposes jsonb, p_purpose text) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT CASE
        WHEN p_purpose = 'effect' THEN
            p_limit - CASE WHEN p_purposes ? 'lookup' THEN p_limit / 20 ELSE 0 END
        WHEN p_purposes ? 'effect' THEN greatest(1, p_limit / 10)
        WHEN p_purpose = 'cursor' AND p_purposes ? 'lookup' AND p_limit > 1 THEN
            p_limit - greatest(1, p_limit / 10)
        ELSE p_limit END
$$;

-- A value as a part of a key: no two sets of parts make one key.
CREATE FUNCTION quota_part(p_name text, p_value text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT p_name || '=' || replace(replace(p_value, '%', '%25'), '/', '%2F')
$$;

-- The key of a dimension for one request. The remote account that is not known is the binding's own.
CREATE FUNCTION quota_key(p_org text, p_provider text, p_binding uuid, p_account text,
    p_endpoint_class text, p_dimension jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT concat_ws('/', p_provider, p_dimension ->> 'name',
        (p_dimension ->> 'window') || '-' || (p_dimension ->> 'window_s'),
        CASE WHEN p_dimension -> 'scope' ? 'org' THEN quota_part('org', p_org) END,
        CASE WHEN p_dimension -> 'scope' ? 'binding' THEN quota_part('binding', p_binding::text) END,
        CASE WHEN p_dimension -> 'scope' ? 'endpoint_class'
             THEN quota_part('class', p_endpoint_class) END,
        CASE WHEN p_dimension -> 'scope' ? 'provider_key'
             THEN coalesce(quota_part('account', p_account),
                           quota_part('account-of', p_binding::text)) END)
$$;

-- The key of the gate that closes a class of requests for all who reach the provider at one
-- address, a class of one binding, or all of one binding.
CREATE FUNCTION quota_gate(p_closes text, p_provider text, p_binding uuid, p_endpoint_class text,
    p_base_url text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT 'gate/' || p_provider || '/' || CASE p_closes
        WHEN 'provider' THEN quota_part('class', p_endpoint_class) || '/' || quota_part('at', p_base_url)
        WHEN 'class' THEN quota_part('class', p_endpoint_class) || '/' || quota_part('binding', p_binding::text)
        WHEN 'binding' THEN quota_part('binding', p_binding::text) END
$$;

-- Where requests of a binding go: the address of its current generation.
CREATE FUNCTION quota_base_url(p_org text, p_binding uuid) RETURNS text
LANGUAGE sql STABLE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    SELECT coalesce(g.base_url, b.base_url)
      FROM principal_bindings AS b
      LEFT JOIN binding_generations AS g
        ON g.org_id = b.org_id AND g.binding_id = b.binding_id AND g.state = 'current'
     WHERE b.org_id = p_org AND b.binding_id = p_binding
$$;

-- The row of a key, locked until COMMIT, and made where it is new. Whoever needs several takes
-- them in the order of their keys. Many wait for one row, and those who wait for a row are woken
-- one for the other; the queue of an advisory lock has twice its throughput.
CREATE FUNCTION quota_locked(p_key text, p_org text, p_provider text, p_binding uuid,
    p_account text, p_endpoint_class text, p_dimension jsonb, p_closes text) RETURNS quota_counts
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    q quota_counts;
    scope jsonb := p_dimension -> 'scope';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_key, 0));
    SELECT * INTO q FROM quota_counts AS c WHERE c.quota_key = p_key FOR NO KEY UPDATE;
    IF FOUND THEN
        RETURN q;
    END IF;
    INSERT INTO quota_counts (quota_key, provider, dimension, time_window, window_seconds, org_id,
        binding_id, endpoint_class, account, base_url)
    VALUES (p_key, p_provider, p_dimension ->> 'name', p_dimension ->> 'window',
        (p_dimension ->> 'window_s')::integer,
        CASE WHEN scope ? 'org' OR p_closes IN ('binding', 'class') THEN p_org END,
        CASE WHEN scope ? 'binding' OR (scope ? 'provider_key' AND p_account IS NULL)
                  OR p_closes IN ('binding', 'class') THEN p_binding END,
        CASE WHEN scope ? 'endpoint_class' OR p_closes IN ('provider', 'class')
             THEN p_endpoint_class END,
        CASE WHEN scope ? 'provider_key' THEN p_account END,
        CASE WHEN p_closes = 'provider' THEN quota_base_url(p_org, p_binding) END)
    ON CONFLICT DO NOTHING;
    SELECT * INTO STRICT q FROM quota_counts AS c WHERE c.quota_key = p_key FOR NO KEY UPDATE;
    RETURN q;
END $$;

-- A count as it is at `p_now`: what is too old to count is forgotten.
CREATE FUNCTION quota_at(q quota_counts, p_now timestamptz) RETURNS quota_counts
LANGUAGE plpgsql STABLE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    slot_seconds double precision := quota_slot_seconds(q.time_window, q.window_seconds);
    now_slot bigint := floor(extract(epoch FROM p_now)::double precision / slot_seconds);
    place integer;
    ended timestamptz;
    units integer;
BEGIN
    IF q.time_window IS NULL THEN
        RETURN q;
    END IF;
    IF now_slot < q.head - 64 THEN
        -- The clock was far ahead once. Nothing is forgotten: all of it was used just now, and
        -- counts for as long as that does.
        place := now_slot % 65 + 1;
        FOR slot IN 1..65 LOOP
            CONTINUE WHEN slot = place;
            q.used[place] := q.used[place] + q.used[slot];
            q.lookups[place] := q.lookups[place] + q.lookups[slot];
            q.cursors[place] := q.cursors[place] + q.cursors[slot];
            q.used[slot] := 0;
            q.lookups[slot] := 0;
            q.cursors[slot] := 0;
        END LOOP;
        q.head := now_slot;
    END IF;
    FOR age IN 0..least(64, now_slot - q.head - 1) LOOP
        place := (now_slot - age) % 65 + 1;
        q.used[place] := 0;
        q.lookups[place] := 0;
        q.cursors[place] := 0;
    END LOOP;
    -- A clock that goes back a little stands still here.
    q.head := greatest(q.head, now_slot);
    IF q.time_window = 'utc_day' THEN
        ended := date_trunc('day', p_now, 'UTC');
    ELSIF q.time_window = 'fixed' AND q.resets_at <= p_now THEN
        ended := q.resets_at;
        q.resets_at := NULL;
    END IF;
    IF ended > q.reset_before OR (ended IS NOT NULL AND q.reset_before IS NULL) THEN
        q.reset_before := ended;
        -- What was reserved in the slot in which it ended may have reached the next window.
        FOR age IN REVERSE 64..0 LOOP
            EXIT WHEN (q.head - age + 1) * slot_seconds
                      > extract(epoch FROM ended)::double precision;
            place := (q.head - age) % 65 + 1;
            q.used[place] := 0;
            q.lookups[place] := 0;
            q.cursors[place] := 0;
        END LOOP;
    END IF;
    RETURN q;
END $$;

-- How many units count, of all purposes, in a count that is of now.
CREATE FUNCTION quota_used(q quota_counts) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sum(u)::integer FROM unnest(q.used) AS u
$$;

-- The limit that holds: the declared one, or the lower one that the provider told lately.
CREATE FUNCTION quota_limit(q quota_counts, p_limit integer, p_now timestamptz) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT least(p_limit, CASE WHEN q.told_until > p_now THEN q.told_limit END)
$$;

-- When a count that is of now has room for one more unit of a purpose; null where it has.
CREATE FUNCTION quota_opens(q quota_counts, p_dimension jsonb, p_purpose text, p_now timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    slot_seconds double precision := quota_slot_seconds(q.time_window, q.window_seconds);
    limit_now integer := quota_limit(q, (p_dimension ->> 'limit')::integer, p_now);
    over integer;
    own_over integer;
    place integer;
    frees timestamptz;
BEGIN
    -- What others than we use counts as effects.
    SELECT sum(t.used) + 1 - limit_now,
           CASE p_purpose WHEN 'lookup' THEN sum(t.lookups) WHEN 'cursor' THEN sum(t.cursors)
                ELSE sum(t.used) - sum(t.lookups) - sum(t.cursors) END + 1
           - quota_share(limit_now, p_dimension -> 'purposes', p_purpose)
      INTO over, own_over
      FROM unnest(q.used, q.lookups, q.cursors) AS t (used, lookups, cursors);
    IF over > 0 OR own_over > 0 THEN
        FOR age IN REVERSE 64..0 LOOP
            place := (q.head - age) % 65 + 1;
            over := over - q.used[place];
            own_over := own_over - CASE p_purpose
                WHEN 'lookup' THEN q.lookups[place]
                WHEN 'cursor' THEN q.cursors[place]
                ELSE q.used[place] - q.lookups[place] - q.cursors[place] END;
            frees := to_timestamp((q.head - age + 65) * slot_seconds);
            EXIT WHEN over <= 0 AND own_over <= 0;
        END LOOP;
        frees := CASE q.time_window
            WHEN 'utc_day' THEN least(frees, date_trunc('day', p_now, 'UTC') + interval '24 hours')
            WHEN 'fixed' THEN least(frees, q.resets_at)
            ELSE frees END;
    END IF;
    RETURN greatest(frees, CASE WHEN q.closed_until > p_now THEN q.closed_until END);
END $$;

-- One unit of each dimension for one request, or none at all, and then until when. A dimension
-- without a limit is not counted, and can only be closed. The clock is read after the last lock:
-- a unit is never older than its row says.
CREATE FUNCTION reserve_quota(p_org text, p_provider text, p_binding uuid, p_account text,
    p_endpoint_class text, p_dimensions jsonb, p_purpose text,
    OUT reserved jsonb, OUT until timestamptz)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    address text := quota_base_url(p_org, p_binding);
    part record;
    dimensions jsonb[] := '{}';
    counts quota_counts[] := '{}';
    q quota_counts;
    place integer;
    at timestamptz;
BEGIN
    SELECT max(c.closed_until) INTO until FROM quota_counts AS c
     WHERE c.closed_until > clock_timestamp() AND c.quota_key IN (
        SELECT quota_gate(closes, p_provider, p_binding, p_endpoint_class, address)
          FROM unnest(ARRAY['provider', 'class', 'binding']) AS closes
         UNION ALL
        SELECT quota_key(p_org, p_provider, p_binding, p_account, p_endpoint_class, d)
          FROM jsonb_array_elements(p_dimensions) AS d WHERE d ->> 'limit' IS NULL);
    IF until IS NULL THEN
        -- Whoever sees that there is no room goes without a lock, which those need who see some:
        -- it is held until COMMIT, and a crowd that is put off would queue for it.
        at := clock_timestamp();
        SELECT max(quota_opens(quota_at(c, at), d.dimension, p_purpose, at)) INTO until
          FROM (SELECT d AS dimension, quota_key(p_org, p_provider, p_binding, p_account,
                                                 p_endpoint_class, d) AS key
                  FROM jsonb_array_elements(p_dimensions) AS d
                 WHERE d ->> 'limit' IS NOT NULL) AS d
          JOIN quota_counts AS c ON c.quota_key = d.key;
    END IF;
    IF until IS NULL THEN
        FOR part IN
            SELECT d AS dimension,
                   quota_key(p_org, p_provider, p_binding, p_account, p_endpoint_class, d) AS key
              FROM jsonb_array_elements(p_dimensions) AS d
             WHERE d ->> 'limit' IS NOT NULL
             ORDER BY 2
        LOOP
            counts := array_append(counts, quota_locked(part.key, p_org, p_provider, p_binding,
                p_account, p_endpoint_class, part.dimension, NULL));
            dimensions := array_append(dimensions, part.dimension);
        END LOOP;
        at := clock_timestamp();
        FOR n IN 1..cardinality(counts) LOOP
            counts[n] := quota_at(counts[n], at);
            until := greatest(until, quota_opens(counts[n], dimensions[n], p_purpose, at));
        END LOOP;
    END IF;
    IF until IS NOT NULL THEN
        -- Who waits for the same moment must not all come in it.
        until := until + random() * least(interval '1 minute', greatest(
            interval '10 milliseconds', (until - clock_timestamp()) / 20));
        RETURN;
    END IF;
    reserved := '[]'::jsonb;
    FOR n IN 1..cardinality(counts) LOOP
        q := counts[n];
        place := q.head % 65 + 1;
        q.used[place] := q.used[place] + 1;
        IF p_purpose = 'lookup' THEN
            q.lookups[place] := q.lookups[place] + 1;
        ELSIF p_purpose = 'cursor' THEN
            q.cursors[place] := q.cursors[place] + 1;
        END IF;
        q.limit_units := (dimensions[n] ->> 'limit')::integer;
        UPDATE quota_counts AS c
           SET head = q.head, used = q.used, lookups = q.lookups, cursors = q.cursors,
               resets_at = q.resets_at, reset_before = q.reset_before, limit_units = q.limit_units,
               limit_max = greatest(c.limit_max, q.limit_units), changed_at = at
         WHERE c.quota_key = q.quota_key;
        reserved := reserved || jsonb_build_object('key', q.quota_key, 'slot', q.head,
            'purpose', p_purpose, 'at', at,
            'room', quota_limit(q, q.limit_units, at) - quota_used(q));
    END LOOP;
END $$;

-- When an item comes again that found no room until `p_until`. Behind a limit a backlog comes about as
-- fast as the limit lets it through, and not all of it whenever something opens. Counted are those of
-- its class that wait, two thousand at most: they come within minutes then, however many they are.
CREATE FUNCTION quota_turn(item work_items, p_until timestamptz, p_dimensions jsonb)
RETURNS timestamptz
LANGUAGE sql VOLATILE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    SELECT p_until + random() * coalesce(
        (SELECT max(make_interval(secs =>
                    greatest(0, least(w.waiting, 2000) - (d ->> 'limit')::integer) * 0.8
                    * (d ->> 'window_s')::double precision / (d ->> 'limit')::double precision))
           FROM jsonb_array_elements(p_dimensions) AS d
          CROSS JOIN (SELECT count(*) AS waiting
                        FROM (SELECT FROM work_items AS o
                               WHERE o.org_id = item.org_id AND o.queue_class = item.queue_class
                                 AND o.state IN ('pending', 'processing', 'retry')
                                 AND o.run_after > clock_timestamp() LIMIT 2000) AS f) AS w
          -- A day's limit opens once, and then for all of them.
          WHERE d ->> 'limit' IS NOT NULL AND (d ->> 'window_s')::integer <= 60), interval '0')
$$;
GRANT EXECUTE ON FUNCTION quota_turn TO oncefence_app;

-- What was reserved for a request of which it is proven that it was never sent. A slot that is
-- forgotten has nothing to give back.
CREATE FUNCTION return_quota(p_reserved jsonb) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    part record;
    place integer;
BEGIN
    FOR part IN
        SELECT r ->> 'key' AS key, (r ->> 'slot')::bigint AS slot, r ->> 'purpose' AS purpose
          FROM jsonb_array_elements(p_reserved) AS r ORDER BY 1
    LOOP
        place := part.slot % 65 + 1;
        PERFORM pg_advisory_xact_lock(hashtextextended(part.key, 0));
        UPDATE quota_counts AS c
           SET used[place] = c.used[place] - 1,
               lookups[place] = c.lookups[place]
                   - (part.purpose = 'lookup' AND c.lookups[place] > 0)::integer,
               cursors[place] = c.cursors[place]
                   - (part.purpose = 'cursor' AND c.cursors[place] > 0)::integer,
               changed_at = clock_timestamp()
         WHERE c.quota_key = part.key AND c.used[place] > 0
           AND part.slot BETWEEN c.head - 64 AND c.head;
    END LOOP;
END $$;

-- What the headers of an answer say of one count that is of now. It only ever takes away: units
-- that others use are counted as ours, and what the provider does not say changes nothing.
CREATE FUNCTION quota_corrected(q quota_counts, p_limit integer, p_room integer, p_rate jsonb,
    p_now timestamptz) RETURNS quota_counts
LANGUAGE plpgsql STABLE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    -- Of any size that a header may show; nothing here may fail, or no answer would be settled.
    told_limit bigint := p_rate ->> 'limit';
    remaining bigint := p_rate ->> 'remaining';
    reset_seconds double precision := (p_rate ->> 'reset_s')::double precision;
    ends_at timestamptz := p_now + make_interval(
        secs => least(coalesce(reset_seconds, q.window_seconds), q.window_seconds));
    limit_now integer;
    room integer;
    place integer := q.head % 65 + 1;
BEGIN
    IF q.time_window = 'utc_day' THEN
        ends_at := date_trunc('day', p_now, 'UTC') + interval '24 hours';
    ELSIF q.time_window = 'fixed' AND reset_seconds > 0
          -- No window is much shorter than it is said to be: else each answer could end one.
          AND (q.reset_before IS NULL
               OR ends_at >= q.reset_before + make_interval(secs => q.window_seconds * 0.9)) THEN
        q.resets_at := ends_at;
    END IF;
    IF told_limit BETWEEN 1 AND p_limit - 1 THEN
        q.told_limit := told_limit;
        q.told_until := ends_at;
    ELSIF told_limit >= p_limit THEN
        q.told_limit := NULL;
        q.told_until := NULL;
    END IF;
    IF remaining IS NULL THEN
        RETURN q;
    END IF;
    limit_now := quota_limit(q, p_limit, p_now);
    room := limit_now - quota_used(q);
    IF remaining = 0 AND least(room, p_room) > 0 THEN
        -- Somebody else used it up. Where we did ourselves, our own count says when it opens.
        q.closed_until := greatest(q.closed_until, ends_at);
        q.closed_because := 'nothing remaining';
    ELSIF remaining + greatest(1, limit_now / 10) < least(room, p_room) THEN
        -- An answer shows a moment that is past, so a small difference is none.
        q.used[place] := q.used[place] + room - remaining;
    END IF;
    RETURN q;
END $$;

-- The slot in which a unit has to stand for its request, if that left at `p_sent`: it counts until
-- the request is a window old, and half of the margin more for what the network adds.
CREATE FUNCTION quota_slot_of(q quota_counts, p_sent timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ceil((extract(epoch FROM p_sent)::double precision + q.window_seconds * 1.02)
                / quota_slot_seconds(q.time_window, q.window_seconds))::bigint - 65
$$;

-- A count that is of now, in which a unit stands where its request really left: the margin of a
-- short window is not long enough for a busy machine.
CREATE FUNCTION quota_moved(q quota_counts, p_from bigint, p_to bigint, p_purpose text)
RETURNS quota_counts
LANGUAGE plpgsql IMMUTABLE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    place integer := p_from % 65 + 1;
    place_now integer := least(p_to, q.head) % 65 + 1;
BEGIN
    IF p_from NOT BETWEEN q.head - 64 AND q.head OR q.used[place] = 0 THEN
        -- It is forgotten, or was given back.
        RETURN q;
    END IF;
    q.used[place] := q.used[place] - 1;
    q.used[place_now] := q.used[place_now] + 1;
    IF p_purpose = 'lookup' AND q.lookups[place] > 0 THEN
        q.lookups[place] := q.lookups[place] - 1;
        q.lookups[place_now] := q.lookups[place_now] + 1;
    ELSIF p_purpose = 'cursor' AND q.cursors[place] > 0 THEN
        q.cursors[place] := q.cursors[place] - 1;
        q.cursors[place_now] := q.cursors[place_now] + 1;
    END IF;
    RETURN q;
END $$;

-- What the provider's own answer says of its counts: its headers, and the limit that a refusal met.
-- `p_told` has 'rates', of dimensions by their names, 'close' with what is closed, for how long and
-- why, and 'since_sent_s', how long ago the request left.
CREATE FUNCTION correct_quota(p_org text, p_provider text, p_binding uuid, p_account text,
    p_endpoint_class text, p_dimensions jsonb, p_reserved jsonb, p_told jsonb) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    told_close jsonb := nullif(p_told -> 'close', 'null');
    sent_at timestamptz := clock_timestamp()
        - make_interval(secs => (p_told ->> 'since_sent_s')::double precision);
    part record;
    q quota_counts;
    at timestamptz;
    ends_at timestamptz;
BEGIN
    FOR part IN
        WITH counted AS (
            SELECT d, quota_key(p_org, p_provider, p_binding, p_account, p_endpoint_class, d) AS key
              FROM jsonb_array_elements(p_dimensions) AS d)
        SELECT r ->> 'key' AS key, NULL::jsonb AS dimension, NULL::jsonb AS rate, NULL AS closes,
               r AS late
          FROM jsonb_array_elements(p_reserved) AS r
          JOIN quota_counts AS c ON c.quota_key = r ->> 'key'
         WHERE c.time_window = 'rolling' AND quota_slot_of(c, sent_at) > (r ->> 'slot')::bigint
         UNION ALL
        SELECT c.key, c.d, r, NULL, NULL
          FROM counted AS c
          JOIN jsonb_array_elements(p_told -> 'rates') AS r ON r ->> 'dimension' = c.d ->> 'name'
         WHERE c.d ->> 'limit' IS NOT NULL
         UNION ALL
        SELECT c.key, c.d, NULL, 'dimension', NULL
          FROM counted AS c WHERE c.d ->> 'name' = told_close ->> 'dimension'
         UNION ALL
        SELECT quota_gate(g.closes, p_provider, p_binding, p_endpoint_class,
                          quota_base_url(p_org, p_binding)), NULL, NULL, g.closes, NULL
          FROM (SELECT CASE WHEN told_close ->> 'closes' <> 'dimension'
                            THEN told_close ->> 'closes'
                            -- A limit that requests of this class do not count in.
                            WHEN told_close ->> 'closes' = 'dimension' AND NOT EXISTS (
                                SELECT FROM counted AS c
                                 WHERE c.d ->> 'name' = told_close ->> 'dimension')
                            THEN 'class' END) AS g (closes)
         WHERE g.closes IS NOT NULL
         ORDER BY 1
    LOOP
        q := quota_locked(part.key, p_org, p_provider, p_binding, p_account, p_endpoint_class,
                          part.dimension, part.closes);
        at := clock_timestamp();
        q := quota_at(q, at);
        IF part.late IS NOT NULL THEN
            q := quota_moved(q, (part.late ->> 'slot')::bigint, quota_slot_of(q, sent_at),
                             part.late ->> 'purpose');
        END IF;
        IF part.rate IS NOT NULL THEN
            q := quota_corrected(q, (part.dimension ->> 'limit')::integer, (
                SELECT (r ->> 'room')::integer FROM jsonb_array_elements(p_reserved) AS r
                 WHERE r ->> 'key' = part.key), part.rate, at);
        END IF;
        IF part.closes IS NOT NULL THEN
            ends_at := at + make_interval(secs => (told_close ->> 'seconds')::double precision);
            IF (told_close ->> 'until_midnight')::boolean THEN
                ends_at := greatest(ends_at, date_trunc('day', at, 'UTC') + interval '24 hours');
            END IF;
            IF q.closed_until IS NULL OR q.closed_until < ends_at THEN
                q.closed_until := ends_at;
                q.closed_because := told_close ->> 'because';
            END IF;
        END IF;
        UPDATE quota_counts AS c
           SET head = q.head, used = q.used, lookups = q.lookups, cursors = q.cursors,
               limit_max = greatest(c.limit_max, (part.dimension ->> 'limit')::integer),
               told_limit = q.told_limit, told_until = q.told_until, resets_at = q.resets_at,
               reset_before = q.reset_before, closed_until = q.closed_until,
               closed_because = q.closed_because, changed_at = at
         WHERE c.quota_key = part.key;
    END LOOP;
END $$;
GRANT EXECUTE ON FUNCTION quota_slot_seconds, quota_share, quota_part, quota_key, quota_gate,
    quota_base_url, quota_locked, quota_at, quota_used, quota_limit, quota_opens, quota_corrected,
    quota_slot_of, quota_moved,
    reserve_quota, return_quota, correct_quota TO oncefence_app;
