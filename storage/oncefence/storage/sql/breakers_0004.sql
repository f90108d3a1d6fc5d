-- Breakers: a provider or an account that fails is left alone for a while, by every process (C304).
-- One for each provider and class of endpoints, which is of every org ('*'), and one for each
-- binding. A row comes with the first failure, or with an operator; without one it is closed.

-- The numbers, filled by the migration from the domain. They are of the deployment and not of a
-- process: two processes that judged one breaker by different numbers would undo each other's acts.
CREATE TABLE breaker_rules (
    singleton boolean PRIMARY KEY DEFAULT true
        CONSTRAINT one_row_of_breaker_rules CHECK (singleton),
    -- What is longer ago than this counts for nothing.
    signs_count_for interval NOT NULL,
    -- So many accounts' own failures in a row open theirs.
    failures_max integer NOT NULL,
    -- So many orgs, and more than half of those seen, open a provider's ..
    orgs_min integer NOT NULL,
    -- .. and not before those that succeed had this time to be seen.
    watched_for interval NOT NULL,
    -- How long it is open: at first, doubling, and at most.
    open_first interval NOT NULL,
    open_max interval NOT NULL,
    -- Half-open: reads come one after the other, writes when no read has told anything for so long.
    between_reads interval NOT NULL,
    between_writes interval NOT NULL,
    -- The ramp lets one a second through, then two, and is over where it would reach this many.
    ramp_rate_max integer NOT NULL
);

CREATE TABLE breakers (
    org_id text NOT NULL,
    key text NOT NULL,
    provider text NOT NULL,
    endpoint_class text,
    binding_id uuid,
    state text NOT NULL,
    -- By which move it came into its state.
    via text NOT NULL,
    -- One higher with each move; what an operator's act names as expected.
    version bigint NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Who made the last move, where a person did.
    changed_by text,
    changed_note text,
    -- How often it opened since it was last closed.
    opens integer NOT NULL DEFAULT 0,
    opened_at timestamptz,
    until timestamptz,
    -- Signs of requests that began before this are of another time.
    counts_from timestamptz,
    -- Of a binding: failures in a row, and when the first of them was.
    failures integer NOT NULL DEFAULT 0,
    first_failed_at timestamptz,
    -- Since its first failure, and so long after its last one, successes are worth a write.
    watched_from timestamptz,
    watched_until timestamptz,
    -- Half-open or in the ramp: the next read, and the next write, may pass then.
    reads_from timestamptz,
    writes_from timestamptz,
    PRIMARY KEY (org_id, key),
    CONSTRAINT a_breaker_is_called_what_it_is_of CHECK (
        CASE WHEN org_id = '*'
             THEN binding_id IS NULL AND endpoint_class IS NOT NULL
                  AND key = 'provider:' || provider || ':' || endpoint_class
             ELSE endpoint_class IS NULL AND binding_id IS NOT NULL
                  AND key = 'binding:' || binding_id::text END),
    CONSTRAINT an_opened_breaker_has_its_times CHECK (
        state = 'closed' OR num_nonnulls(opened_at, until, counts_from) = 3)
) WITH (fillfactor = 70);

-- What each org last told of a provider and class: it counts once, by its newest sign.
CREATE TABLE breaker_orgs (
    org_id text NOT NULL,
    key text NOT NULL,
    last_failed_at timestamptz,
    last_succeeded_at timestamptz,
    PRIMARY KEY (org_id, key)
) WITH (fillfactor = 70);
CREATE INDEX orgs_of_a_breaker ON breaker_orgs (key);

-- OF080: moves of a breaker; OF081: its first state; OF082: what moves with nothing else.
CREATE FUNCTION guard_breaker() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.org_id, NEW.key, NEW.provider, NEW.endpoint_class, NEW.binding_id)
       IS DISTINCT FROM (OLD.org_id, OLD.key, OLD.provider, OLD.endpoint_class, OLD.binding_id) THEN
        RAISE EXCEPTION 'breaker: what it is of never changes' USING ERRCODE = 'OF082';
    END IF;
    IF NEW.state = OLD.state THEN
        IF (NEW.via, NEW.version, NEW.changed_at, NEW.changed_by, NEW.changed_note, NEW.opens,
            NEW.opened_at, NEW.until, NEW.counts_from)
           IS DISTINCT FROM
           (OLD.via, OLD.version, OLD.changed_at, OLD.changed_by, OLD.changed_note, OLD.opens,
            OLD.opened_at, OLD.until, OLD.counts_from) THEN
            RAISE EXCEPTION 'breaker: stays %, so only what it counts may change', OLD.state
                USING ERRCODE = 'OF082';
        END IF;
        RETURN NEW;
    END IF;
    PERFORM FROM lifecycle_transitions AS t
     WHERE t.lifecycle = 'breaker' AND t.source = OLD.state AND t.target = NEW.state
       AND t.trigger = NEW.via
       -- A person's move names the person; any other one nobody.
       AND (t.actor = 'operator') = (NEW.changed_by IS NOT NULL)
       AND (t.actor = 'operator') = (NEW.changed_note IS NOT NULL);
    IF NOT FOUND OR NEW.version <> OLD.version + 1 THEN
        RAISE EXCEPTION 'breaker: no move % -> % by % to version %', OLD.state, NEW.state, NEW.via,
            NEW.version USING ERRCODE = 'OF080';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_breaker_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.state <> 'closed' OR NEW.via <> 'create' OR NEW.version <> 0 OR NEW.opens <> 0
       OR NEW.failures <> 0 OR num_nonnulls(NEW.until, NEW.opened_at, NEW.counts_from,
                                            NEW.changed_by, NEW.changed_note) > 0 THEN
        RAISE EXCEPTION 'breaker: begins closed, and with nothing counted'
            USING ERRCODE = 'OF081';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_birth BEFORE INSERT ON breakers
    FOR EACH ROW EXECUTE FUNCTION guard_breaker_birth();
CREATE TRIGGER a_lifecycle BEFORE UPDATE ON breakers
    FOR EACH ROW EXECUTE FUNCTION guard_breaker();
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['breakers', 'breaker_orgs', 'breaker_rules'] LOOP
        EXECUTE format('CREATE TRIGGER a_kept BEFORE DELETE ON %I
                        FOR EACH ROW EXECUTE FUNCTION refuse_removal()', name);
        EXECUTE format('CREATE TRIGGER a_kept_whole BEFORE TRUNCATE ON %I
                        FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal()', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE ON breakers, breaker_orgs TO oncefence_app;
GRANT SELECT ON breaker_rules TO oncefence_app;

CREATE FUNCTION provider_breaker(p_provider text, p_endpoint_class text) RETURNS text
LANGUAGE sql IMMUTABLE SECURITY INVOKER AS $$
    SELECT 'provider:' || p_provider || ':' || p_endpoint_class
$$;
CREATE FUNCTION binding_breaker(p_binding uuid) RETURNS text
LANGUAGE sql IMMUTABLE SECURITY INVOKER AS $$
    SELECT 'binding:' || p_binding::text
$$;

-- When the ramp of a breaker that is in it is over: as many seconds as its rate takes to double up
-- to the highest.
CREATE FUNCTION ramp_ends(b breakers, rules breaker_rules) RETURNS timestamptz
LANGUAGE sql IMMUTABLE SECURITY INVOKER AS $$
    SELECT b.changed_at + make_interval(secs => ceil(log(2, rules.ramp_rate_max)))
$$;

-- How long a request of an org waits for this breaker; null where it may pass now. An open one is
-- half-open from its time on, whether anybody has come to say so or not.
CREATE FUNCTION breaker_wait(b breakers, p_asks text, p_is_read boolean) RETURNS timestamptz
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    rules breaker_rules;
    passes_at timestamptz;
    ramp_end timestamptz;
BEGIN
    IF b.state = 'closed' THEN
        RETURN NULL;
    END IF;
    SELECT * INTO rules FROM breaker_rules;
    IF b.state = 'open' THEN
        passes_at := b.until;
        IF NOT p_is_read AND b.until <= clock_timestamp() THEN
            passes_at := b.until + rules.between_writes;
        END IF;
    ELSE
        passes_at := CASE WHEN p_is_read THEN b.reads_from ELSE b.writes_from END;
    END IF;
    IF b.state = 'half_open' AND b.org_id = '*' THEN
        -- Whoever failed at its probe leaves the next ones to others, for a while.
        passes_at := greatest(passes_at, (
            SELECT o.last_failed_at + rules.open_first FROM breaker_orgs AS o
             WHERE o.org_id = p_asks AND o.key = b.key AND o.last_failed_at > b.counts_from
               AND o.last_failed_at > coalesce(o.last_succeeded_at, '-infinity')));
    END IF;
    IF b.state = 'ramp' THEN
        ramp_end := ramp_ends(b, rules);
        IF ramp_end <= clock_timestamp() THEN
            RETURN NULL;
        END IF;
        IF passes_at > clock_timestamp() THEN
            -- Whoever waits comes back at a moment of its own, and not all at once.
            RETURN passes_at + random() * greatest(ramp_end - passes_at, interval '0');
        END IF;
    END IF;
    RETURN CASE WHEN passes_at > clock_timestamp() THEN passes_at END;
END $$;

-- Whether a request has to wait, and until when; null where it may be sent. `needs_place`: not
-- both breakers are closed, so that it must take its place with `take_breaker_place` before it is.
-- Locks nothing, and of two closed breakers reads two rows by their keys.
CREATE FUNCTION breaker_obstacle(p_org text, p_provider text, p_endpoint_class text,
    p_binding uuid, p_is_read boolean, OUT until timestamptz, OUT needs_place boolean)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    each breakers;
BEGIN
    needs_place := false;
    FOR each IN
        SELECT * FROM breakers AS b
         WHERE ((b.org_id = '*' AND b.key = provider_breaker(p_provider, p_endpoint_class))
                OR (b.org_id = p_org AND b.key = binding_breaker(p_binding)))
           AND b.state <> 'closed'
    LOOP
        needs_place := true;
        until := greatest(until, breaker_wait(each, p_org, p_is_read));
    END LOOP;
END $$;

-- One place among those that half-open and ramping breakers let through, of both or of neither;
-- null where it was taken, else until when to wait. Asked for last, when nothing else holds the
-- request back: it locks the rows until COMMIT, so that places are given one after the other.
CREATE FUNCTION take_breaker_place(p_org text, p_provider text, p_endpoint_class text,
    p_binding uuid, p_is_read boolean) RETURNS timestamptz
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    each breakers;
    rules breaker_rules;
    until timestamptz;
    passed timestamptz;
    asked text[] := '{}';
BEGIN
    FOR each IN
        SELECT * FROM breakers AS b
         WHERE ((b.org_id = '*' AND b.key = provider_breaker(p_provider, p_endpoint_class))
                OR (b.org_id = p_org AND b.key = binding_breaker(p_binding)))
           AND b.state <> 'closed'
         ORDER BY b.org_id <> '*'
           FOR NO KEY UPDATE
    LOOP
        asked := array_append(asked, each.key);
        until := greatest(until, breaker_wait(each, p_org, p_is_read));
    END LOOP;
    IF until IS NOT NULL THEN
        RETURN until;
    END IF;
    SELECT * INTO rules FROM breaker_rules;
    passed := clock_timestamp();
    FOR each IN
        SELECT * FROM breakers AS b
         WHERE ((b.org_id = '*' AND b.key = provider_breaker(p_provider, p_endpoint_class))
                OR (b.org_id = p_org AND b.key = binding_breaker(p_binding)))
           -- One that has opened since then was neither asked nor locked.
           AND b.key = ANY (asked)
    LOOP
        IF each.state = 'open' THEN
            PERFORM move_breaker(each, 'half_open', 'probe');
        ELSIF each.state = 'ramp' AND ramp_ends(each, rules) <= passed THEN
            PERFORM move_breaker(each, 'closed', 'ramp_over');
        END IF;
        UPDATE breakers AS b
           SET reads_from = CASE
                   WHEN NOT p_is_read THEN b.reads_from
                   WHEN b.state = 'half_open' THEN passed + rules.between_reads
                   ELSE passed + ramp_spacing(b) END,
               writes_from = CASE
                   WHEN p_is_read THEN b.writes_from
                   WHEN b.state = 'half_open' THEN passed + rules.between_writes
                   ELSE passed + ramp_spacing(b) END
         WHERE b.org_id = each.org_id AND b.key = each.key AND b.state <> 'closed';
    END LOOP;
    RETURN NULL;
END $$;

-- The time from one to the next in a ramp: a second at first, and half of it with each second.
CREATE FUNCTION ramp_spacing(b breakers) RETURNS interval
LANGUAGE sql VOLATILE SECURITY INVOKER AS $$
    SELECT interval '1 second'
           / power(2, floor(extract(epoch FROM clock_timestamp() - b.changed_at)))
$$;

-- A breaker's own move, of a row that the caller has locked.
CREATE FUNCTION move_breaker(b breakers, p_target text, p_via text) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    rules breaker_rules;
    moved timestamptz := clock_timestamp();
BEGIN
    SELECT * INTO rules FROM breaker_rules;
    UPDATE breakers AS o
       SET state = p_target, via = p_via, version = o.version + 1, changed_at = moved,
           changed_by = NULL, changed_note = NULL,
           -- What was under way before says nothing of what is now.
           counts_from = moved, failures = 0, first_failed_at = NULL,
           watched_from = NULL, watched_until = NULL,
           opens = CASE p_target WHEN 'open' THEN o.opens + 1 WHEN 'closed' THEN 0 ELSE o.opens END,
           opened_at = CASE p_target WHEN 'open' THEN moved ELSE o.opened_at END,
           -- No power of two that is no time any more.
           until = CASE p_target WHEN 'open'
                        THEN moved + least(rules.open_first * power(2, least(o.opens, 20)),
                                           rules.open_max)
                        ELSE o.until END,
           reads_from = moved,
           writes_from = CASE p_target WHEN 'half_open' THEN moved + rules.between_writes
                                       ELSE moved END
     WHERE o.org_id = b.org_id AND o.key = b.key;
END $$;

-- One request's sign of the provider and of the account: 'success' or 'failure'. `p_began` is when
-- it was claimed or marked. A success that tells of two healthy breakers writes and locks nothing.
CREATE FUNCTION note_breaker(p_org text, p_provider text, p_endpoint_class text,
    p_binding uuid, p_is_read boolean, p_sign text, p_began timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    of_provider text := provider_breaker(p_provider, p_endpoint_class);
    of_binding text := binding_breaker(p_binding);
BEGIN
    IF p_sign = 'failure' AND NOT p_is_read THEN
        INSERT INTO breakers (org_id, key, provider, endpoint_class, binding_id, state, via)
        SELECT n.org_id, n.key, p_provider, n.endpoint_class, n.binding_id, 'closed', 'create'
          FROM (VALUES ('*', of_provider, p_endpoint_class, NULL::uuid),
                       (p_org, of_binding, NULL::text, p_binding))
               AS n (org_id, key, endpoint_class, binding_id)
         WHERE NOT EXISTS (SELECT FROM breakers AS b WHERE b.org_id = n.org_id AND b.key = n.key)
        ON CONFLICT DO NOTHING;
    ELSE
        PERFORM FROM breakers AS b
          WHERE ((b.org_id = '*' AND b.key = of_provider)
                 OR (b.org_id = p_org AND b.key = of_binding))
            AND (b.state IN ('half_open', 'ramp')
                 OR (b.state = 'closed' AND b.watched_until > clock_timestamp()
                     AND NOT p_is_read));
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    PERFORM note_one_breaker('*', of_provider, p_org, p_is_read, p_sign, p_began);
    PERFORM note_one_breaker(p_org, of_binding, p_org, p_is_read, p_sign, p_began);
END $$;

CREATE FUNCTION note_one_breaker(p_org text, p_key text, p_teller text, p_is_read boolean,
    p_sign text, p_began timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    b breakers;
    rules breaker_rules;
    seen_at timestamptz;
    horizon timestamptz;
    is_down boolean;
BEGIN
    SELECT * INTO rules FROM breaker_rules;
    SELECT * INTO b FROM breakers AS o WHERE o.org_id = p_org AND o.key = p_key;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF b.state = 'closed' AND p_sign = 'success' AND p_org = '*' THEN
        -- All orgs tell of one breaker, so none of them locks it to say that all is well.
        IF NOT p_is_read AND b.watched_until > clock_timestamp()
           AND p_began >= coalesce(b.counts_from, p_began) THEN
            PERFORM tell_of_org(p_teller, p_key, p_sign, b.counts_from, rules);
        END IF;
        RETURN;
    END IF;
    SELECT * INTO b FROM breakers AS o
     WHERE o.org_id = p_org AND o.key = p_key FOR NO KEY UPDATE;
    seen_at := clock_timestamp();
    IF b.counts_from > p_began OR b.state = 'open' THEN
        RETURN;
    END IF;
    IF b.state = 'ramp' AND ramp_ends(b, rules) <= seen_at THEN
        PERFORM move_breaker(b, 'closed', 'ramp_over');
        SELECT * INTO b FROM breakers AS o WHERE o.org_id = p_org AND o.key = p_key;
    END IF;
    IF b.state IN ('half_open', 'ramp') THEN
        is_down := p_sign = 'failure';
        IF p_org = '*' THEN
            PERFORM tell_of_org(p_teller, p_key, p_sign, b.counts_from, rules);
            -- What one org could not open it cannot keep open: the fault may be its account's.
            SELECT is_down AND f.failing >= 2 AND f.failing * 2 > f.seen INTO is_down
              FROM orgs_telling(p_key, b.counts_from) AS f;
        END IF;
        IF is_down THEN
            PERFORM move_breaker(b, 'open', 'relapse');
        ELSIF p_sign = 'success' AND b.state = 'half_open' THEN
            PERFORM move_breaker(b, 'ramp', 'recover');
        END IF;
        RETURN;
    END IF;
    IF p_is_read THEN
        -- A provider that is dark for writes may well answer reads, and the other way round: of
        -- what is not in doubt only the writes themselves tell.
        RETURN;
    END IF;
    IF p_sign = 'success' THEN
        UPDATE breakers AS o
           SET failures = 0, first_failed_at = NULL, watched_from = NULL, watched_until = NULL
         WHERE o.org_id = p_org AND o.key = p_key AND o.failures > 0;
        RETURN;
    END IF;
    UPDATE breakers AS o
       SET watched_from = CASE WHEN o.watched_until > seen_at THEN o.watched_from ELSE seen_at END,
           watched_until = seen_at + rules.signs_count_for,
           failures = CASE WHEN p_org = '*' THEN 0
                           WHEN o.first_failed_at > seen_at - rules.signs_count_for
                           THEN o.failures + 1 ELSE 1 END,
           first_failed_at = CASE WHEN p_org = '*' THEN NULL
                                  WHEN o.first_failed_at > seen_at - rules.signs_count_for
                                  THEN o.first_failed_at ELSE seen_at END
     WHERE o.org_id = p_org AND o.key = p_key
    RETURNING * INTO b;
    IF p_org <> '*' THEN
        is_down := b.failures >= rules.failures_max;
    ELSE
        PERFORM tell_of_org(p_teller, p_key, p_sign, b.counts_from, rules);
        horizon := greatest(seen_at - rules.signs_count_for, b.counts_from);
        SELECT b.watched_from <= seen_at - rules.watched_for
               AND f.failing >= rules.orgs_min AND f.failing * 2 > f.seen
          INTO is_down
          FROM orgs_telling(p_key, horizon) AS f;
    END IF;
    IF is_down THEN
        PERFORM move_breaker(b, 'open', 'trip');
    END IF;
END $$;

-- Of how many orgs the newest sign of a breaker is a failure, and how many tell anything at all.
CREATE FUNCTION orgs_telling(p_key text, p_since timestamptz, OUT failing bigint, OUT seen bigint)
LANGUAGE sql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    SELECT count(*) FILTER (WHERE o.last_failed_at > p_since
               AND o.last_failed_at > coalesce(o.last_succeeded_at, '-infinity')),
           count(*)
      FROM breaker_orgs AS o
     WHERE o.key = p_key AND greatest(o.last_failed_at, o.last_succeeded_at) > p_since
$$;

-- An org's newest sign. One that says what is known is written anew only where that grows old, or
-- is of a time that counts no more.
CREATE FUNCTION tell_of_org(p_org text, p_key text, p_sign text, p_counts_from timestamptz,
    rules breaker_rules) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    failed timestamptz;
    succeeded timestamptz;
    fresh timestamptz := greatest(clock_timestamp() - rules.signs_count_for / 2, p_counts_from);
BEGIN
    SELECT o.last_failed_at, o.last_succeeded_at INTO failed, succeeded
      FROM breaker_orgs AS o WHERE o.org_id = p_org AND o.key = p_key;
    IF (p_sign = 'success' AND succeeded > greatest(failed, fresh))
       OR (p_sign = 'failure' AND failed > greatest(succeeded, fresh)) THEN
        RETURN;
    END IF;
    INSERT INTO breaker_orgs AS o (org_id, key, last_failed_at, last_succeeded_at)
    VALUES (p_org, p_key, CASE p_sign WHEN 'failure' THEN clock_timestamp() END,
            CASE p_sign WHEN 'success' THEN clock_timestamp() END)
    ON CONFLICT (org_id, key) DO UPDATE
       SET last_failed_at = coalesce(excluded.last_failed_at, o.last_failed_at),
           last_succeeded_at = coalesce(excluded.last_succeeded_at, o.last_succeeded_at);
END $$;
GRANT EXECUTE ON FUNCTION provider_breaker, binding_breaker, ramp_ends, breaker_wait,
    breaker_obstacle, take_breaker_place, ramp_spacing, move_breaker, note_breaker,
    note_one_breaker, orgs_telling, tell_of_org TO oncefence_app;
