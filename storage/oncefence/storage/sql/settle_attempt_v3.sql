-- The end of an attempt by its starter: outcome, item, execution, completion, the link of a record
-- that it created and, where the outcome is unknown, the one lookup item; all in one transaction
-- and one trip. What the answer says of quota, of the provider's health and of the token is kept
-- with it. Lock order: item, attempt, execution, link, grant, quota rows by key, breakers by key.
CREATE FUNCTION settle_attempt_v3(
    p_org text, p_work uuid, p_attempt uuid, p_token uuid, p_epoch bigint, p_outcome text,
    p_may_have_applied boolean, p_failure_class text, p_status integer, p_receipt jsonb,
    p_phases jsonb, p_answer bytea, p_as_of timestamptz, p_run_after timestamptz,
    p_attempts_max integer, p_first_lookup_at timestamptz, p_created_id text,
    p_told jsonb, p_sign text, p_credential_refused boolean,
    OUT verdict text, OUT item_state text, OUT execution_status text, OUT failure_class text,
    OUT lookup_work_id uuid, OUT next_due timestamptz, OUT lookup_deadline_ms integer,
    OUT outcome text
)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    item work_items;
    attempt effect_attempts;
    execution executions;
    command commands;
    rule settlement_rules;
    doubted boolean;
    replay_is_open boolean;
    credential_is_at_fault boolean := false;
BEGIN
    SELECT coalesce(c.lookup_deadline_ms, c.deadline_ms) INTO lookup_deadline_ms
      FROM effect_attempts AS a
      JOIN commands AS c ON c.org_id = a.org_id AND c.command_id = a.command_id
     WHERE a.org_id = p_org AND a.attempt_id = p_attempt;
    SELECT * INTO item FROM work_items AS w
     WHERE w.org_id = p_org AND w.work_id = p_work FOR UPDATE;
    SELECT * INTO attempt FROM effect_attempts AS a
     WHERE a.org_id = p_org AND a.attempt_id = p_attempt FOR UPDATE;
    IF attempt.settled_at IS NOT NULL AND attempt.settled_token = p_token
       AND attempt.settled_epoch = p_epoch AND attempt.settled_as = 'starter' THEN
        -- The answer to an earlier COMMIT was lost; what it wrote stands.
        SELECT e.status INTO execution_status FROM executions AS e
         WHERE e.org_id = p_org AND e.execution_id = attempt.execution_id;
        verdict := 'settled_before';
        outcome := attempt.outcome;
        item_state := item.state;
        SELECT w.work_id, w.run_after INTO lookup_work_id, next_due FROM work_items AS w
         WHERE w.org_id = p_org AND w.command_id = attempt.command_id
           AND w.family = 'effect.lookup' AND w.state IN ('pending', 'retry', 'processing');
        next_due := coalesce(next_due, item.run_after);
        RETURN;
    END IF;
    -- Token and epoch decide, not the time: until somebody settles it as lost, the starter's
    -- own answer is the better knowledge, however late.
    IF item.state IS DISTINCT FROM 'processing' OR item.lease_token IS DISTINCT FROM p_token
       OR item.ownership_epoch IS DISTINCT FROM p_epoch
       OR attempt.settled_at IS NOT NULL OR attempt.lease_token IS DISTINCT FROM p_token THEN
        verdict := 'fence_lost';
        RETURN;
    END IF;
    SELECT * INTO execution FROM executions AS e
     WHERE e.org_id = p_org AND e.execution_id = attempt.execution_id FOR UPDATE;
    SELECT * INTO command FROM commands AS c
     WHERE c.org_id = p_org AND c.command_id = attempt.command_id;

    outcome := p_outcome;
    IF command.remote_id IS NULL AND p_outcome = 'ACCEPTED'
       AND NOT fill_create_slot(p_org, command.link_id, p_created_id) THEN
        -- The provider accepted, and names a record that is another one's, or none. Whose it is
        -- must not be guessed: this settles nothing.
        outcome := 'OUTCOME_UNKNOWN';
        p_may_have_applied := true;
        p_failure_class := CASE WHEN p_created_id IS NULL THEN 'evidence_missing'
                                ELSE 'identity_taken' END;
    END IF;
    UPDATE effect_attempts AS a
       SET settled_at = clock_timestamp(), settled_as = 'starter', settled_token = p_token,
           settled_epoch = p_epoch, outcome = settle_attempt_v3.outcome,
           -- What is known to have applied is in no doubt any more, and holds no lane.
           may_have_applied = p_may_have_applied
               AND settle_attempt_v3.outcome <> 'ACCEPTED',
           failure_class = p_failure_class, response_status = p_status,
           provider_receipt = p_receipt, phases = p_phases
     WHERE a.org_id = p_org AND a.attempt_id = p_attempt;
    IF p_credential_refused THEN
        credential_is_at_fault := note_credential_refused(
            p_org, attempt.generation_id, attempt.token_version, EXISTS (
                SELECT FROM effect_attempts AS a
                 WHERE a.org_id = p_org AND a.command_id = attempt.command_id
                   AND a.ordinal = attempt.ordinal - 1 AND a.response_status = 401
                   AND a.generation_id = attempt.generation_id
                   AND a.token_version < attempt.token_version));
    END IF;
    IF outcome = 'RETRYABLE_PRE_DISPATCH' THEN
        PERFORM return_quota(attempt.quota);
    END IF;
    IF p_told IS NOT NULL THEN
        PERFORM correct_quota(p_org, command.provider, command.binding_id,
            (SELECT g.account FROM binding_generations AS g
              WHERE g.org_id = p_org AND g.generation_id = attempt.generation_id),
            command.endpoint_class, command.quota, attempt.quota, p_told);
    END IF;
    IF p_sign IS NOT NULL THEN
        PERFORM note_breaker(p_org, command.provider, command.endpoint_class,
            command.binding_id, false, p_sign, attempt.started_at);
    END IF;
    doubted := newest_doubt(p_org, attempt.command_id) IS NOT NULL;
    replay_is_open := command.idempotency_key IS NULL OR
        p_run_after + make_interval(secs => command.deadline_ms / 1000.0)
        < replay_ends(p_org, attempt.command_id, command.replay_window_seconds);
    -- Without a key of the provider's own nothing that may have applied is ever repeated.
    IF doubted AND command.idempotency_key IS NULL THEN
        replay_is_open := false;
    END IF;
    SELECT * INTO STRICT rule FROM settlement_rules AS r
     WHERE r.outcome = settle_attempt_v3.outcome
       -- Another attempt would be refused as this one was: nothing is gained by the rest of them.
       AND r.at_ceiling = (execution.attempt >= p_attempts_max OR credential_is_at_fault)
       AND r.may_have_applied = doubted AND r.replay_open = replay_is_open;
    IF credential_is_at_fault AND rule.execution_status = 'failed' THEN
        rule.failure_class := 'credential_fault';
    END IF;

    UPDATE work_items AS w
       SET state = rule.item_state, via = rule.item_trigger, lease_owner = NULL,
           lease_token = NULL, lease_until = NULL, outcome = settle_attempt_v3.outcome,
           failure_class = rule.failure_class, changed_at = clock_timestamp(),
           run_after = CASE rule.item_state WHEN 'retry' THEN p_run_after ELSE w.run_after END,
           summary = p_failure_class
     WHERE w.org_id = p_org AND w.work_id = p_work;
    UPDATE executions AS e
       SET status = rule.execution_status, via = rule.execution_trigger,
           failure_class = CASE WHEN rule.execution_status IN ('failed', 'unknown')
                                THEN rule.failure_class END,
           settlements = e.settlements
               + (rule.execution_status IN ('succeeded', 'failed'))::integer,
           settled_by = CASE WHEN rule.execution_status IN ('succeeded', 'failed')
                             THEN 'worker' END,
           provider_reference = p_receipt,
           evidence_grade = CASE rule.execution_status WHEN 'succeeded' THEN 'receipt' END,
           changed_at = clock_timestamp()
     WHERE e.org_id = p_org AND e.execution_id = execution.execution_id;
    IF outcome = 'ACCEPTED' THEN
        -- Under one key of the provider's it is one effect, and it is applied: an earlier
        -- attempt that may have applied is in doubt no longer.
        UPDATE effect_attempts AS a SET disposition = 'applied', disposed_at = clock_timestamp()
         WHERE a.org_id = p_org AND a.command_id = attempt.command_id
           AND a.may_have_applied AND a.disposition IS NULL;
    END IF;
    IF p_answer IS NOT NULL THEN
        INSERT INTO sealed_payloads (org_id, execution_id, kind, ordinal, ciphertext)
        VALUES (p_org, execution.execution_id, 'answer', attempt.ordinal, p_answer);
    END IF;
    IF command.remote_id IS NULL AND rule.execution_status = 'failed' THEN
        PERFORM give_back_create_slot(p_org, command.link_id);
    END IF;
    IF rule.execution_status IN ('succeeded', 'failed') THEN
        PERFORM add_completion(p_org, execution.execution_id);
    END IF;
    IF rule.lookup_due <> 'never' THEN
        -- The newest attempt in doubt is the one to investigate, and it need not be this one.
        next_due := CASE rule.lookup_due WHEN 'now' THEN p_as_of ELSE p_first_lookup_at END;
        lookup_work_id := add_lookup_item(
            p_org, p_work, newest_doubt(p_org, attempt.command_id), next_due);
    ELSIF rule.item_state = 'retry' THEN
        next_due := p_run_after;
    END IF;
    verdict := 'settled';
    item_state := rule.item_state;
    execution_status := rule.execution_status;
    failure_class := rule.failure_class;
END $$;
GRANT EXECUTE ON FUNCTION settle_attempt_v3 TO oncefence_app;
