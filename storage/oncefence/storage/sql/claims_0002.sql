-- Claiming, for every family: who may, and how. Written once, used by the dispatch mark, by the
-- sweep and by the claim of every other family.

-- Whether an item is the head of both its lanes and nothing in them is in doubt. Sequences are
-- drawn under the lane's lock, so every earlier one is visible to a statement that begins after
-- the lock of the item. It is called for each row that is asked about, by indexes alone: its
-- sub-selects keep it from being planned into the query.
CREATE FUNCTION lanes_are_free(item work_items) RETURNS boolean
LANGUAGE sql STABLE SECURITY INVOKER AS $$
    -- Each asks for the first in the order of one index, so that it is that index which is read:
    -- of a store that is idle when statistics are made, the planner takes every index that begins
    -- with the org to be as good, and would read all live rows of the org until the next time.
    SELECT (SELECT w.work_id FROM oncefence.work_items AS w
              WHERE w.org_id = item.org_id AND w.state IN ('pending', 'processing', 'retry')
                AND w.source_lane = item.source_lane
                AND w.source_sequence < item.source_sequence
              ORDER BY w.source_sequence LIMIT 1) IS NULL
       AND (SELECT w.work_id FROM oncefence.work_items AS w
              WHERE w.org_id = item.org_id AND w.state IN ('pending', 'processing', 'retry')
                AND w.target_lane = item.target_lane
                AND w.target_sequence < item.target_sequence
              ORDER BY w.target_sequence LIMIT 1) IS NULL
       AND (SELECT a.attempt_id FROM oncefence.effect_attempts AS a
              WHERE a.org_id = item.org_id AND a.source_lane = item.source_lane
                AND a.command_id IS DISTINCT FROM item.command_id
                AND (a.outcome IS NULL OR (a.may_have_applied AND a.disposition IS NULL))
              ORDER BY a.ordinal LIMIT 1) IS NULL
       AND (SELECT a.attempt_id FROM oncefence.effect_attempts AS a
              WHERE a.org_id = item.org_id AND a.target_lane = item.target_lane
                AND a.command_id IS DISTINCT FROM item.command_id
                AND (a.outcome IS NULL OR (a.may_have_applied AND a.disposition IS NULL))
              ORDER BY a.ordinal LIMIT 1) IS NULL
$$;

-- Whether a pause is about an item; in force or not.
CREATE FUNCTION is_paused_by(item work_items, pause pauses) RETURNS boolean
LANGUAGE sql IMMUTABLE SECURITY INVOKER AS $$
    SELECT pause.org_id IN ('*', item.org_id)
       AND (pause.provider IS NULL OR pause.provider = item.provider)
       AND (pause.definition IS NULL OR pause.definition = item.definition)
       AND (pause.binding_id IS NULL OR pause.binding_id = item.binding_id)
$$;

-- What keeps a due item from being claimed by an engine of this capability; null where nothing
-- does. While a pause's ramp lasts, its row is locked, so that the claims which it lets through
-- are counted one after the other.
CREATE FUNCTION obstacle_to_claim(item work_items, p_engine_capability integer,
    p_ramp_claims_max integer, OUT obstacle text, OUT until timestamptz)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    pause pauses;
    running integer;
    share double precision;
BEGIN
    IF item.engine_capability > p_engine_capability THEN
        obstacle := 'needs_newer_engine';
        RETURN;
    END IF;
    IF NOT lanes_are_free(item) THEN
        obstacle := 'lane_blocked';
        RETURN;
    END IF;
    -- Until COMMIT, so that whoever pauses waits for the claims under way, and none comes after.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('pauses', 0));
    FOR pause IN
        SELECT * FROM pauses AS p
         WHERE p.org_id IN ('*', item.org_id) AND is_paused_by(item, p)
           AND (p.resumed_at IS NULL
                OR p.resumed_at + make_interval(secs => p.ramp_seconds) > clock_timestamp())
         ORDER BY p.resumed_at NULLS FIRST, p.org_id, p.pause_id
           FOR UPDATE
    LOOP
        IF pause.resumed_at IS NULL THEN
            obstacle := 'paused';
            RETURN;
        END IF;
        SELECT count(*) INTO running FROM work_items AS w
         WHERE w.state = 'processing' AND w.lease_until > clock_timestamp()
           AND w.work_id <> item.work_id AND is_paused_by(w, pause);
        share := extract(epoch FROM clock_timestamp() - pause.resumed_at) / pause.ramp_seconds;
        IF running >= greatest(1, floor(p_ramp_claims_max * share)) THEN
            obstacle := 'slow_start';
            until := clock_timestamp() + make_interval(secs => greatest(
                pause.ramp_seconds / p_ramp_claims_max, 0.05));
            RETURN;
        END IF;
    END LOOP;
END $$;

-- The claim itself: the next epoch, a token of its own, a lease. Null where another item of its
-- target lane was claimed through a gap that no predicate can close. `p_place` is where the row was
-- locked: until COMMIT nobody else moves it from there, so it needs no second way down its index.
CREATE FUNCTION take_claim(item work_items, p_place tid, p_owner uuid, p_token uuid,
    p_lease interval, p_is_reclaim boolean, p_counts_attempt boolean,
    OUT epoch bigint, OUT until timestamptz)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
BEGIN
    UPDATE work_items AS w
       SET state = 'processing', via = CASE WHEN p_is_reclaim THEN 'reclaim' ELSE 'claim' END,
           lease_owner = p_owner, lease_token = p_token,
           lease_until = clock_timestamp() + p_lease,
           ownership_epoch = w.ownership_epoch + 1,
           attempt = w.attempt + p_counts_attempt::integer,
           claims_lost = w.claims_lost + p_is_reclaim::integer, changed_at = clock_timestamp()
     WHERE w.ctid = p_place AND w.org_id = item.org_id AND w.work_id = item.work_id
    RETURNING w.ownership_epoch, w.lease_until INTO STRICT epoch, until;
EXCEPTION WHEN unique_violation THEN
    RETURN;
END $$;

-- The claim of any family but the dispatch, whose claim is its mark. Ends nothing: what is
-- poisoned or cancelled is told, under the row's lock, to the phase that ends it.
CREATE FUNCTION claim_work(
    p_org text, p_work uuid, p_as_of timestamptz, p_owner uuid, p_token uuid,
    p_lease_margin interval, p_claims_lost_max integer, p_engine_capability integer,
    p_ramp_claims_max integer, p_may_claim boolean,
    OUT verdict text, OUT until timestamptz, OUT epoch bigint, OUT lost_token uuid
)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    locked record;
    item work_items;
    is_reclaim boolean := false;
BEGIN
    SELECT w AS item, w.ctid AS place INTO locked FROM work_items AS w
     WHERE w.org_id = p_org AND w.work_id = p_work FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'no_such_item';
        RETURN;
    END IF;
    item := locked.item;
    epoch := item.ownership_epoch;
    IF item.state = 'processing' THEN
        until := item.lease_until;
        IF item.lease_token = p_token THEN
            -- The answer to this very claim's COMMIT was lost; it stands.
            verdict := 'claimed';
            RETURN;
        ELSIF item.lease_until > clock_timestamp() THEN
            verdict := 'in_flight';
            RETURN;
        END IF;
        IF NOT p_may_claim THEN
            verdict := 'not_marked';
            RETURN;
        END IF;
        is_reclaim := true;
        lost_token := item.lease_token;
        IF item.cancel_requested_at IS NOT NULL THEN
            -- Whoever was to acknowledge it is gone, and nothing is in the open.
            verdict := 'cancelled';
            RETURN;
        ELSIF item.claims_lost + 1 >= p_claims_lost_max THEN
            verdict := 'poisoned';
            RETURN;
        END IF;
    ELSIF item.state NOT IN ('pending', 'retry') THEN
        verdict := 'finished';
        RETURN;
    ELSIF item.run_after > p_as_of THEN
        verdict := 'not_due';
        until := item.run_after;
        RETURN;
    END IF;
    IF NOT p_may_claim THEN
        -- The caller's process stops; it only asks whether an earlier try of its own stands.
        verdict := 'not_marked';
        RETURN;
    END IF;
    SELECT o.obstacle, o.until INTO verdict, until
      FROM obstacle_to_claim(item, p_engine_capability, p_ramp_claims_max) AS o;
    IF verdict IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT c.epoch, c.until INTO epoch, until
      FROM take_claim(item, locked.place, p_owner, p_token,
        make_interval(secs => item.deadline_ms / 1000.0) + p_lease_margin, is_reclaim, false) AS c;
    verdict := CASE WHEN epoch IS NULL THEN 'lane_blocked' ELSE 'claimed' END;
END $$;

-- What an operator saw of an item: an act that names another version than this one is refused.
CREATE FUNCTION work_version(item work_items) RETURNS text
LANGUAGE sql STABLE SECURITY INVOKER AS $$
    SELECT substr(encode(sha256(convert_to(concat_ws('|', item.org_id, item.work_id, item.state,
        item.ownership_epoch, extract(epoch FROM item.changed_at),
        extract(epoch FROM item.cancel_requested_at)), 'UTF8')), 'hex'), 1, 16)
$$;

-- The lookup item of an attempt whose outcome is unknown, as before, with the columns of now.
CREATE OR REPLACE FUNCTION add_lookup_item(p_org text, p_dispatch_work uuid, p_attempt uuid,
                                           p_run_after timestamptz) RETURNS uuid
LANGUAGE sql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    INSERT INTO work_items (org_id, work_id, family, subject_kind, subject_id, command_id,
        execution_id, attempt_id, installation, view_id, view_digest, view_revision, definition,
        provider, binding_id, queue_class, deadline_ms, state, via, run_after)
    SELECT w.org_id, derived_id(p_attempt || ':effect.lookup:' || (
               SELECT count(*) + 1 FROM work_items AS o
                WHERE o.org_id = w.org_id AND o.command_id = w.command_id
                  AND o.family = 'effect.lookup' AND o.attempt_id = p_attempt)), 'effect.lookup',
           'execution', w.execution_id::text, w.command_id, w.execution_id, p_attempt,
           w.installation, w.view_id, w.view_digest, w.view_revision, w.definition, w.provider,
           w.binding_id, 'lookup:' || w.queue_class, coalesce(c.lookup_deadline_ms, c.deadline_ms),
           'pending', 'create', p_run_after
      FROM work_items AS w
      JOIN commands AS c ON c.org_id = w.org_id AND c.command_id = w.command_id
     WHERE w.org_id = p_org AND w.work_id = p_dispatch_work
    RETURNING work_id
$$;
GRANT EXECUTE ON FUNCTION lanes_are_free, is_paused_by, obstacle_to_claim, take_claim, claim_work,
    work_version TO oncefence_app;
