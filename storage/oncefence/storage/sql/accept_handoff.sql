-- One statement, one transaction: the admission of a handoff key and all that follows from it.
-- Each part selects FROM the part that it relies on, so a key that is taken writes nothing.
WITH admitted AS (
    INSERT INTO oncefence.handoffs (handoff_key, org_id, installation, capability,
        work_binding_digest, admission, outbox_id, payload_address, command_id, retained_until)
    VALUES (:handoff_key, :org_id, :installation, :capability, :work_binding_digest,
        'COMMAND_ACCEPTED', :outbox_id, :payload_address, :command_id,
        clock_timestamp() + make_interval(days => :retention_days))
    ON CONFLICT DO NOTHING
    RETURNING org_id, command_id, admitted_at
), drawn AS (
    -- The upsert locks each lane row until COMMIT, so an earlier number is always visible
    -- before a later one is drawn. Sorted, so that two acceptances lock in one order.
    INSERT INTO oncefence.lanes AS l (org_id, lane_key, sequence)
    SELECT a.org_id, k.lane_key, 1
      FROM admitted AS a, unnest(ARRAY[:source_lane, :target_lane]::text[]) AS k (lane_key)
     WHERE k.lane_key IS NOT NULL
     ORDER BY k.lane_key
    ON CONFLICT (org_id, lane_key) DO UPDATE SET sequence = l.sequence + 1
    RETURNING l.org_id, l.lane_key, l.sequence
), places AS (
    SELECT a.org_id, s.sequence AS source_sequence, t.sequence AS target_sequence
      FROM admitted AS a
      LEFT JOIN drawn AS s ON s.lane_key = :source_lane
      LEFT JOIN drawn AS t ON t.lane_key = :target_lane
), command AS (
    INSERT INTO oncefence.commands (org_id, command_id, handoff_key, outbox_id, operation, subject,
        provider, endpoint_class, view_id, view_digest, binding_id, generation_id, link_id,
        link_version, remote_id, payload_address, request_method, request_target,
        request_headers, request_body_address, idempotency_key, replay_window_seconds,
        deadline_ms, lookup_deadline_ms, is_sensitive, completion_contract, looks_first,
        quota, lookup_quota)
    SELECT p.org_id, :command_id, :handoff_key, :outbox_id, :operation, :subject,
        :provider, :endpoint_class, :view_id, :view_digest, :binding_id, :generation_id, :link_id,
        :link_version, :remote_id, :payload_address, :request_method, :request_target,
        CAST(:request_headers AS jsonb), :request_body_address, :idempotency_key,
        :replay_window_seconds, :deadline_ms, :lookup_deadline_ms, :is_sensitive,
        CAST(:completion_contract AS jsonb), :looks_first,
        CAST(:quota AS jsonb), CAST(:lookup_quota AS jsonb)
      FROM places AS p
    RETURNING org_id, command_id
), execution AS (
    INSERT INTO oncefence.executions (org_id, execution_id, command_id, status, via)
    SELECT c.org_id, :execution_id, c.command_id, 'accepted', 'create' FROM command AS c
    RETURNING org_id, execution_id
), data_key AS (
    INSERT INTO oncefence.execution_keys (org_id, execution_id, wrapped_key, key_id)
    SELECT e.org_id, e.execution_id, :wrapped_key, :key_id FROM execution AS e
    RETURNING org_id, execution_id
), sealed AS (
    INSERT INTO oncefence.sealed_payloads (org_id, execution_id, kind, ordinal, ciphertext)
    SELECT d.org_id, d.execution_id, s.kind, 1, s.ciphertext
      FROM data_key AS d,
           (VALUES ('payload', CAST(:sealed_payload AS bytea)),
                   ('request', CAST(:sealed_request AS bytea))) AS s (kind, ciphertext)
    RETURNING org_id, execution_id
), item AS (
    INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id,
        command_id, execution_id, installation, view_id, view_digest, view_revision, definition,
        provider, binding_id, queue_class, deadline_ms, source_lane, source_sequence, target_lane, target_sequence, state, via, run_after)
    SELECT e.org_id, :work_id, :family, 'command', CAST(:command_id AS uuid)::text,
        :command_id, e.execution_id, :installation, :view_id, :view_digest, :view_revision,
        :operation, :provider, :binding_id, :endpoint_class, :deadline_ms, :source_lane, p.source_sequence, :target_lane, p.target_sequence,
        -- Workflow time comes in whole milliseconds, cut off: a due time with more digits
        -- would look as if it were still ahead.
        'pending', 'create', date_trunc('milliseconds', clock_timestamp())
      FROM execution AS e JOIN places AS p ON p.org_id = e.org_id
    RETURNING run_after
)
SELECT (SELECT admitted_at FROM admitted) AS admitted_at,
       (SELECT run_after FROM item) AS run_after,
       (SELECT count(*) FROM admitted) AS admissions,
       (SELECT count(*) FROM command) AS commands,
       (SELECT count(*) FROM sealed) AS sealed,
       (SELECT count(*) FROM item) AS work_items,
       -- Counted no further than it matters; the item itself is not visible here. Where anything
       -- is paused, whoever announces it looks closer.
       (SELECT count(*) FROM (
            SELECT FROM oncefence.work_items AS w
             WHERE w.org_id = :org_id AND w.queue_class = :endpoint_class
               AND w.state IN ('pending', 'processing', 'retry') LIMIT :few) AS l) < :few
       AND NOT EXISTS (
            SELECT FROM oncefence.pauses AS p
             WHERE p.resumed_at IS NULL AND p.org_id IN ('*', :org_id)) AS has_room
