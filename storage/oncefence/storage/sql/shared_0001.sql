-- What more than one phase does, written once.

-- An identity that is computed, never drawn (UUID version 8): the first 122 free bits of the
-- SHA-256 of a name. oncefence.domain.ids.derived_id is its twin.
CREATE FUNCTION derived_id(name text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT (substr(h, 1, 12) || '8' || substr(h, 14, 3) || '8' || substr(h, 18, 15))::uuid
      FROM encode(sha256(convert_to(name, 'UTF8')), 'hex') AS h
$$;

-- The completion of an execution's newest settlement; it names the one that it supersedes.
CREATE FUNCTION add_completion(p_org text, p_execution uuid) RETURNS void
LANGUAGE sql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    INSERT INTO completions (org_id, completion_id, execution_id, settlement, status, supersedes,
                             contract)
    SELECT e.org_id, e.execution_id || ':' || e.settlements, e.execution_id, e.settlements,
           e.status, CASE WHEN e.settlements > 1
                          THEN e.execution_id || ':' || e.settlements - 1 END,
           c.completion_contract
      FROM executions AS e
      JOIN commands AS c ON c.org_id = e.org_id AND c.command_id = e.command_id
     WHERE e.org_id = p_org AND e.execution_id = p_execution
       AND e.status IN ('succeeded', 'failed', 'cancelled')
$$;

-- The newest attempt of a command that may have applied without proof of the contrary; one
-- that is not disposed comes first.
CREATE FUNCTION newest_doubt(p_org text, p_command uuid) RETURNS uuid
LANGUAGE sql STABLE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    SELECT a.attempt_id FROM effect_attempts AS a
     WHERE a.org_id = p_org AND a.command_id = p_command AND a.may_have_applied
       AND a.disposition IS DISTINCT FROM 'no_effect_proof'
     ORDER BY (a.disposition IS NULL) DESC, a.ordinal DESC LIMIT 1
$$;

-- The lookup item of an attempt whose outcome is unknown, in no lane. An attempt has a second one
-- only where its execution became unknown a second time.
CREATE FUNCTION add_lookup_item(p_org text, p_dispatch_work uuid, p_attempt uuid,
                                p_run_after timestamptz) RETURNS uuid
LANGUAGE sql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    INSERT INTO work_items (org_id, work_id, family, subject_kind, subject_id, command_id,
        execution_id, attempt_id, installation, view_id, view_digest, queue_class, deadline_ms,
        state, via, run_after)
    SELECT w.org_id, derived_id(p_attempt || ':effect.lookup:' || (
               SELECT count(*) + 1 FROM work_items AS o
                WHERE o.org_id = w.org_id AND o.command_id = w.command_id
                  AND o.family = 'effect.lookup' AND o.attempt_id = p_attempt)), 'effect.lookup', 'execution',
           w.execution_id::text, w.command_id, w.execution_id, p_attempt, w.installation,
           w.view_id, w.view_digest, 'lookup:' || w.queue_class,
           coalesce(c.lookup_deadline_ms, c.deadline_ms), 'pending', 'create', p_run_after
      FROM work_items AS w
      JOIN commands AS c ON c.org_id = w.org_id AND c.command_id = w.command_id
     WHERE w.org_id = p_org AND w.work_id = p_dispatch_work
    RETURNING work_id
$$;
GRANT EXECUTE ON FUNCTION derived_id, add_completion, newest_doubt, add_lookup_item TO oncefence_app;
