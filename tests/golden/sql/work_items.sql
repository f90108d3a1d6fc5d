-- ADD
INSERT INTO oncefence.work_items (org_id, work_id, family, subject_kind, subject_id, command_id, execution_id, attempt_id, installation, view_id, view_digest, payload_schema_version, engine_capability, queue_class, deadline_ms, source_lane, source_sequence, target_lane, target_sequence, replays_work_id, state, via, run_after, attempt, claims_lost, lease_owner, lease_token, lease_until, ownership_epoch, rollback_fence_id, legacy_receipt_version, legacy_receipt_digest, outcome, failure_class, summary, made_at, changed_at, definition, view_revision, provider, binding_id, cancel_requested_at, left_by) VALUES (:org_id, :work_id::UUID, :family, :subject_kind, :subject_id, :command_id::UUID, :execution_id::UUID, :attempt_id::UUID, :installation, :view_id::UUID, :view_digest, :payload_schema_version, :engine_capability, :queue_class, :deadline_ms, :source_lane, :source_sequence, :target_lane, :target_sequence, :replays_work_id::UUID, :state, :via, :run_after, :attempt, :claims_lost, :lease_owner::UUID, :lease_token::UUID, :lease_until, :ownership_epoch, :rollback_fence_id::UUID, :legacy_receipt_version, :legacy_receipt_digest, :outcome, :failure_class, :summary, :made_at, :changed_at, :definition, :view_revision, :provider, :binding_id::UUID, :cancel_requested_at, :left_by::UUID);

-- LOCK
SELECT oncefence.work_items.org_id, oncefence.work_items.work_id, oncefence.work_items.family, oncefence.work_items.subject_kind, oncefence.work_items.subject_id, oncefence.work_items.command_id, oncefence.work_items.execution_id, oncefence.work_items.attempt_id, oncefence.work_items.installation, oncefence.work_items.view_id, oncefence.work_items.view_digest, oncefence.work_items.payload_schema_version, oncefence.work_items.engine_capability, oncefence.work_items.queue_class, oncefence.work_items.deadline_ms, oncefence.work_items.source_lane, oncefence.work_items.source_sequence, oncefence.work_items.target_lane, oncefence.work_items.target_sequence, oncefence.work_items.replays_work_id, oncefence.work_items.state, oncefence.work_items.via, oncefence.work_items.run_after, oncefence.work_items.attempt, oncefence.work_items.claims_lost, oncefence.work_items.lease_owner, oncefence.work_items.lease_token, oncefence.work_items.lease_until, oncefence.work_items.ownership_epoch, oncefence.work_items.rollback_fence_id, oncefence.work_items.legacy_receipt_version, oncefence.work_items.legacy_receipt_digest, oncefence.work_items.outcome, oncefence.work_items.failure_class, oncefence.work_items.summary, oncefence.work_items.made_at, oncefence.work_items.changed_at, oncefence.work_items.definition, oncefence.work_items.view_revision, oncefence.work_items.provider, oncefence.work_items.binding_id, oncefence.work_items.cancel_requested_at, oncefence.work_items.left_by
FROM oncefence.work_items
WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID FOR UPDATE;

-- LEASE_LIVE
SELECT oncefence.work_items.lease_until > clock_timestamp() AS anon_1
FROM oncefence.work_items
WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID;

-- RENEW
UPDATE oncefence.work_items SET lease_until=greatest(oncefence.work_items.lease_until, clock_timestamp() + :lease) WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state = :state_1 AND oncefence.work_items.lease_token = :of_token::UUID AND oncefence.work_items.ownership_epoch = :of_epoch RETURNING oncefence.work_items.lease_until, oncefence.work_items.cancel_requested_at;

-- LEAVE
UPDATE oncefence.work_items SET state=:target, via=:trigger, run_after=coalesce(:due, oncefence.work_items.run_after), attempt=coalesce(:attempts, oncefence.work_items.attempt), claims_lost=(oncefence.work_items.claims_lost + :lost), lease_owner=:lease_owner::UUID, lease_token=:lease_token::UUID, lease_until=:lease_until, failure_class=:why, summary=:told, changed_at=clock_timestamp() WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state = :state_1 AND oncefence.work_items.lease_token = :of_token::UUID AND oncefence.work_items.ownership_epoch = :of_epoch;

-- BRING_FORWARD
UPDATE oncefence.work_items SET run_after=:due WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state IN ('pending', 'retry') AND oncefence.work_items.run_after > :due;

-- PUT_OFF
UPDATE oncefence.work_items SET run_after=:due WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state IN ('pending', 'retry') AND oncefence.work_items.run_after < :due;

-- CANCEL
UPDATE oncefence.work_items SET state=:state, via=:via, failure_class=:why, changed_at=clock_timestamp() WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state IN ('pending', 'retry');

-- ASK_TO_CANCEL
UPDATE oncefence.work_items SET cancel_requested_at=clock_timestamp() WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state = :state_1 AND oncefence.work_items.cancel_requested_at IS NULL;

-- ADD_REPLAY
INSERT INTO oncefence.work_items (org_id, family, subject_kind, subject_id, command_id, execution_id, attempt_id, installation, view_id, view_digest, view_revision, definition, provider, binding_id, payload_schema_version, engine_capability, queue_class, deadline_ms, source_lane, source_sequence, target_lane, target_sequence, work_id, replays_work_id, state, via, run_after) SELECT oncefence.work_items.org_id, oncefence.work_items.family, oncefence.work_items.subject_kind, oncefence.work_items.subject_id, oncefence.work_items.command_id, oncefence.work_items.execution_id, oncefence.work_items.attempt_id, oncefence.work_items.installation, oncefence.work_items.view_id, oncefence.work_items.view_digest, oncefence.work_items.view_revision, oncefence.work_items.definition, oncefence.work_items.provider, oncefence.work_items.binding_id, oncefence.work_items.payload_schema_version, oncefence.work_items.engine_capability, oncefence.work_items.queue_class, oncefence.work_items.deadline_ms, oncefence.work_items.source_lane, oncefence.work_items.source_sequence, oncefence.work_items.target_lane, oncefence.work_items.target_sequence, :new_work::UUID AS anon_1, oncefence.work_items.work_id, 'pending', 'create', date_trunc(:date_trunc_2, clock_timestamp()) AS date_trunc_1
FROM oncefence.work_items
WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID RETURNING oncefence.work_items.work_id, oncefence.work_items.run_after;
