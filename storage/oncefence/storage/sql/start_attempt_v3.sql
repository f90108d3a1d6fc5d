-- An item that is held back is due when what holds it may have passed. It keeps its state, and one
-- that is a lost claim's keeps its lease. What is held until somebody acts has no such time.
CREATE FUNCTION put_off(item work_items, p_place tid, p_until timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    -- Workflow time comes in whole milliseconds, cut off.
    due timestamptz := date_trunc('milliseconds', p_until) + interval '1 millisecond';
BEGIN
    IF item.state IN ('pending', 'retry') AND due > item.run_after THEN
        UPDATE work_items AS w SET run_after = due
         WHERE w.ctid = p_place AND w.org_id = item.org_id AND w.work_id = item.work_id;
    END IF;
    RETURN due;
END $$;
GRANT EXECUTE ON FUNCTION put_off TO oncefence_app;

-- Claim, locks, checks and the dispatch mark in one transaction and one trip.
-- Lock order: item, execution, link, generation, grant, quota rows by key, breakers. Lock first,
-- then decide: each decision is a statement of its own after the lock, so it reads what the lock's
-- last holder wrote. Quota comes late, so that its rows are held for as short as may be, and of
-- breakers only those that are not closed are locked, after it.
CREATE FUNCTION start_attempt_v3(
    p_org text, p_work uuid, p_as_of timestamptz, p_owner uuid, p_token uuid,
    p_lease_margin interval, p_claims_lost_max integer, p_engine_capability integer,
    p_ramp_claims_max integer, p_may_start boolean,
    OUT verdict text, OUT until timestamptz, OUT failure_class text, OUT execution_status text,
    OUT attempt_id uuid, OUT epoch bigint, OUT ordinal integer, OUT command_id uuid,
    OUT execution_id uuid, OUT view_id uuid, OUT view_digest text, OUT operation text,
    OUT provider text, OUT base_url text, OUT is_local boolean, OUT remote_id text,
    OUT deadline_ms integer, OUT started_at timestamptz, OUT request_ciphertext bytea,
    OUT request_wrapped_key bytea, OUT request_key_id text, OUT generation_id uuid,
    OUT binding_id uuid, OUT token_version integer, OUT token_ciphertext bytea,
    OUT token_wrapped_key bytea, OUT token_key_id text, OUT idempotency_key text, OUT lookup_work_id uuid,
    OUT lookup_deadline_ms integer
)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    locked record;
    locked_execution record;
    item work_items;
    execution executions;
    command commands;
    link remote_links;
    generation binding_generations;
    attempt effect_attempts;
    is_reclaim boolean := false;
    is_resumed boolean := false;
    obstacle text;
    doubted boolean;
    reserved jsonb;
    needs_place boolean;
BEGIN
    SELECT w AS item, w.ctid AS place INTO locked FROM work_items AS w
     WHERE w.org_id = p_org AND w.work_id = p_work FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'no_such_item';
        RETURN;
    END IF;
    item := locked.item;
    IF item.state = 'processing' THEN
        SELECT * INTO attempt FROM effect_attempts AS a
         WHERE a.org_id = p_org AND a.command_id = item.command_id AND a.work_id = p_work
           AND a.started_at IS NOT NULL AND a.settled_at IS NULL;
        IF FOUND AND item.lease_token = p_token AND attempt.lease_token = p_token THEN
            -- The answer to this very claim's COMMIT was lost: the mark is ours and stands.
            is_resumed := true;
            until := item.lease_until;
        ELSIF FOUND THEN
            -- Whoever finds an attempt started and unsettled never sends. Until its lease ends
            -- the starter may still settle it; after that anyone settles it as lost.
            verdict := CASE WHEN item.lease_until > clock_timestamp()
                            THEN 'in_flight' ELSE 'attempt_lost' END;
            until := item.lease_until;
            attempt_id := attempt.attempt_id;
            RETURN;
        ELSIF item.lease_until > clock_timestamp() THEN
            verdict := 'in_flight';
            until := item.lease_until;
            RETURN;
        ELSE
            is_reclaim := true;
        END IF;
    ELSIF item.state NOT IN ('pending', 'retry') THEN
        verdict := 'finished';
        RETURN;
    ELSIF item.run_after > p_as_of THEN
        verdict := 'not_due';
        until := item.run_after;
        RETURN;
    END IF;
    IF NOT is_resumed AND NOT p_may_start THEN
        -- The caller's deadline has passed; it only asks whether the mark is its own.
        verdict := 'not_marked';
        RETURN;
    END IF;
    SELECT * INTO command FROM commands AS c
     WHERE c.org_id = p_org AND c.command_id = item.command_id;
    IF NOT is_resumed THEN
        SELECT o.obstacle, o.until INTO verdict, until
          FROM obstacle_to_claim(item, p_engine_capability, p_ramp_claims_max) AS o;
        IF verdict IS NOT NULL THEN
            RETURN;
        END IF;

        SELECT e AS execution, e.ctid AS place INTO locked_execution FROM executions AS e
         WHERE e.org_id = p_org AND e.execution_id = item.execution_id FOR UPDATE;
        execution := locked_execution.execution;
        IF execution.status NOT IN ('accepted', 'retrying') THEN
            RAISE EXCEPTION 'work item %: waits, but its execution is %', p_work, execution.status
                USING ERRCODE = 'OF040';
        END IF;
        SELECT * INTO link FROM remote_links AS l
         WHERE l.org_id = p_org AND l.link_id = command.link_id FOR SHARE;
        SELECT * INTO generation FROM binding_generations AS g
         WHERE g.org_id = p_org AND g.generation_id = command.generation_id FOR SHARE;

        IF link.version <> command.link_version
           OR link.state
              <> (CASE WHEN command.remote_id IS NULL THEN 'creating' ELSE 'active' END) THEN
            obstacle := 'link_changed';
        ELSIF generation.state <> 'current' THEN
            obstacle := 'binding_generation_stale';
        ELSIF is_reclaim AND item.claims_lost + 1 >= p_claims_lost_max THEN
            obstacle := 'poison';
        ELSIF execution.attempt > 0 AND EXISTS (
                SELECT FROM contradictions AS c
                 WHERE c.org_id = p_org AND c.execution_id = execution.execution_id) THEN
            -- Something says that an earlier attempt did what it is proven not to have done. A
            -- person finds it in its queue, and nothing is added to it.
            obstacle := 'contradicted';
        END IF;
        doubted := execution.attempt > 0
                   AND newest_doubt(p_org, command.command_id) IS NOT NULL;
        IF obstacle IS NULL AND doubted AND NOT (
                command.idempotency_key IS NOT NULL
                AND p_as_of + make_interval(secs => command.deadline_ms / 1000.0) < (
                    SELECT min(a.started_as_of) FROM effect_attempts AS a
                     WHERE a.org_id = p_org AND a.command_id = command.command_id)
                    + make_interval(secs => command.replay_window_seconds)) THEN
            obstacle := 'outcome_unknown';
        END IF;
        IF obstacle IS NOT NULL THEN
            -- Nothing is sent any more. What was never sent fails; what may have been is looked up.
            UPDATE work_items AS w
               SET state = CASE WHEN is_reclaim THEN 'dead' ELSE 'cancelled' END,
                   via = CASE WHEN is_reclaim THEN 'give_up' ELSE 'cancel' END,
                   lease_owner = NULL, lease_token = NULL, lease_until = NULL,
                   failure_class = obstacle, changed_at = clock_timestamp(),
                   claims_lost = w.claims_lost + is_reclaim::integer
             WHERE w.org_id = p_org AND w.work_id = p_work;
            UPDATE executions AS e
               SET status = CASE WHEN doubted THEN 'unknown' ELSE 'failed' END,
                   via = CASE WHEN doubted THEN 'safety_ended' ELSE 'cannot_proceed' END,
                   failure_class = obstacle, changed_at = clock_timestamp(),
                   settlements = e.settlements + (NOT doubted)::integer,
                   settled_by = CASE WHEN NOT doubted THEN 'worker' END
             WHERE e.org_id = p_org AND e.execution_id = execution.execution_id
            RETURNING e.status INTO execution_status;
            IF doubted THEN
                attempt_id := newest_doubt(p_org, command.command_id);
                lookup_deadline_ms := coalesce(command.lookup_deadline_ms, command.deadline_ms);
                lookup_work_id := add_lookup_item(p_org, p_work, attempt_id, p_as_of);
                until := p_as_of;
            ELSE
                IF command.remote_id IS NULL THEN
                    PERFORM give_back_create_slot(p_org, command.link_id);
                END IF;
                PERFORM add_completion(p_org, execution.execution_id);
            END IF;
            verdict := 'cannot_proceed';
            failure_class := obstacle;
            command_id := command.command_id;
            execution_id := execution.execution_id;
            RETURN;
        END IF;
        -- What another may lift holds the item back; it waits as it is, and nothing is spent.
        SELECT b.until, b.needs_place INTO until, needs_place
          FROM breaker_obstacle(p_org, command.provider, command.endpoint_class,
                                command.binding_id, false) AS b;
        IF until IS NOT NULL THEN
            verdict := 'breaker_open';
        ELSE
            SELECT t.obstacle, t.until INTO verdict, until
              FROM token_obstacle(p_org, generation.generation_id) AS t;
        END IF;
        IF verdict IS NOT NULL THEN
            until := put_off(item, locked.place, until);
            RETURN;
        END IF;
        IF command.looks_first AND NOT EXISTS (
                SELECT FROM lookups AS l
                 WHERE l.org_id = p_org AND l.work_id = p_work AND l.attempt_id IS NULL
                   AND l.verdict = 'not_found' AND l.ownership_epoch = item.ownership_epoch
                   AND l.looked_at > clock_timestamp() - p_lease_margin) THEN
            -- A create that nothing makes safe to repeat: whether the record is there already is
            -- read just before each attempt, and by whoever is about to make it.
            verdict := 'look_first';
            RETURN;
        END IF;

        SELECT q.reserved, q.until INTO reserved, until
          FROM reserve_quota(p_org, command.provider, command.binding_id, generation.account,
                             command.endpoint_class, command.quota, 'effect') AS q;
        IF reserved IS NULL THEN
            verdict := 'quota_held';
            until := put_off(item, locked.place, quota_turn(item, until, command.quota));
            RETURN;
        END IF;
        IF needs_place THEN
            -- Last of all that may hold it back: a place that is taken and not used is a probe lost.
            until := take_breaker_place(p_org, command.provider, command.endpoint_class,
                                        command.binding_id, false);
            IF until IS NOT NULL THEN
                PERFORM return_quota(reserved);
                verdict := 'breaker_open';
                until := put_off(item, locked.place, until);
                RETURN;
            END IF;
        END IF;
        SELECT c.epoch, c.until INTO epoch, until
          FROM take_claim(item, locked.place, p_owner, p_token,
            make_interval(secs => command.deadline_ms / 1000.0) + p_lease_margin, is_reclaim, true)
            AS c;
        IF epoch IS NULL THEN
            PERFORM return_quota(reserved);
            verdict := 'lane_blocked';
            RETURN;
        END IF;
        attempt_id := derived_id(p_work || ':attempt:' || item.attempt + 1);
        started_at := clock_timestamp();
        IF doubted THEN
            UPDATE effect_attempts AS a SET superseded_by = start_attempt_v3.attempt_id
             WHERE a.org_id = p_org AND a.command_id = command.command_id
               AND a.may_have_applied AND a.disposition IS NULL AND a.superseded_by IS NULL;
        END IF;
        INSERT INTO effect_attempts (org_id, attempt_id, command_id, execution_id, work_id, ordinal,
            source_lane, target_lane, method, relative_target, safe_headers, body_address,
            idempotency_key, lease_token, ownership_epoch, lease_owner, generation_id, token_version,
            link_id, link_version, validation, quota, prepared_at, started_at, started_as_of,
            deadline_ms)
        VALUES (p_org, start_attempt_v3.attempt_id, command.command_id, execution.execution_id, p_work,
            execution.attempt + 1, item.source_lane, item.target_lane, command.request_method,
            command.request_target, command.request_headers, command.request_body_address,
            command.idempotency_key, p_token, item.ownership_epoch + 1, p_owner,
            generation.generation_id, generation.token_version, link.link_id, link.version,
            jsonb_build_object('link_version', link.version, 'generation', generation.ordinal,
                               'lanes', 'free', 'execution', execution.status),
            reserved, start_attempt_v3.started_at, start_attempt_v3.started_at, p_as_of,
            command.deadline_ms)
        RETURNING * INTO attempt;
        UPDATE executions AS e
           SET status = 'running', attempt = e.attempt + 1, changed_at = clock_timestamp(),
               via = CASE e.status WHEN 'accepted' THEN 'begin_delivery' ELSE 'begin_retry' END
         WHERE e.ctid = locked_execution.place AND e.org_id = p_org
           AND e.execution_id = execution.execution_id
           AND e.status = execution.status AND e.attempt = execution.attempt;
    END IF;

    verdict := 'started';
    attempt_id := attempt.attempt_id;
    epoch := attempt.ownership_epoch;
    ordinal := attempt.ordinal;
    started_at := attempt.started_at;
    execution_id := attempt.execution_id;
    execution_status := 'running';
    command_id := command.command_id;
    view_id := command.view_id;
    view_digest := command.view_digest;
    operation := command.operation;
    provider := command.provider;
    remote_id := command.remote_id;
    deadline_ms := command.deadline_ms;
    idempotency_key := command.idempotency_key;
    binding_id := command.binding_id;
    generation_id := attempt.generation_id;
    token_version := attempt.token_version;
    SELECT g.wrapped_key, g.key_id, t.ciphertext
      INTO token_wrapped_key, token_key_id, token_ciphertext
      FROM binding_generations AS g
      JOIN token_versions AS t ON t.org_id = g.org_id AND t.generation_id = g.generation_id
     WHERE g.org_id = p_org AND g.generation_id = attempt.generation_id
       AND t.version = attempt.token_version;
    SELECT coalesce(g.base_url, b.base_url), b.is_local INTO base_url, is_local
      FROM principal_bindings AS b
      JOIN binding_generations AS g ON g.org_id = b.org_id AND g.binding_id = b.binding_id
     WHERE b.org_id = p_org AND b.binding_id = command.binding_id
       AND g.generation_id = attempt.generation_id;
    SELECT s.ciphertext, k.wrapped_key, k.key_id
      INTO request_ciphertext, request_wrapped_key, request_key_id
      FROM sealed_payloads AS s
      JOIN execution_keys AS k ON k.org_id = s.org_id AND k.execution_id = s.execution_id
     WHERE s.org_id = p_org AND s.execution_id = attempt.execution_id
       AND s.kind = 'request' AND s.ordinal = 1;
END $$;
GRANT EXECUTE ON FUNCTION start_attempt_v3 TO oncefence_app;

