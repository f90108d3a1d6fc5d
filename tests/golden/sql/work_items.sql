-- LOCK
SELECT oncefence.work_items.org_id, oncefence.work_items.work_id, oncefence.work_items.family, oncefence.work_items.subject_kind, oncefence.work_items.subject_id, oncefence.work_items.command_id, oncefence.work_items.execution_id, oncefence.work_items.attempt_id, oncefence.work_items.installation, oncefence.work_items.view_id, oncefence.work_items.view_digest, oncefence.work_items.payload_schema_version, oncefence.work_items.engine_capability, oncefence.work_items.queue_class, oncefence.work_items.deadline_ms, oncefence.work_items.source_lane, oncefence.work_items.source_sequence, oncefence.work_items.target_lane, oncefence.work_items.target_sequence, oncefence.work_items.replays_work_id, oncefence.work_items.state, oncefence.work_items.via, oncefence.work_items.run_after, oncefence.work_items.attempt, oncefence.work_items.claims_lost, oncefence.work_items.lease_owner, oncefence.work_items.lease_token, oncefence.work_items.lease_until, oncefence.work_items.ownership_epoch, oncefence.work_items.rollback_fence_id, oncefence.work_items.legacy_receipt_version, oncefence.work_items.legacy_receipt_digest, oncefence.work_items.outcome, oncefence.work_items.failure_class, oncefence.work_items.summary, oncefence.work_items.made_at, oncefence.work_items.changed_at
FROM oncefence.work_items
WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID FOR UPDATE;

-- LEASE_LIVE
SELECT oncefence.work_items.lease_until > clock_timestamp() AS anon_1
FROM oncefence.work_items
WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID;

-- CLAIM
UPDATE oncefence.work_items SET state=:state, via=:via, lease_owner=:owner::UUID, lease_token=:token::UUID, lease_until=(clock_timestamp() + :lease), ownership_epoch=(oncefence.work_items.ownership_epoch + :ownership_epoch_1), changed_at=clock_timestamp() WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state IN ('pending', 'retry') RETURNING oncefence.work_items.ownership_epoch;

-- RECLAIM
UPDATE oncefence.work_items SET via=:via, claims_lost=(oncefence.work_items.claims_lost + :claims_lost_1), lease_owner=:owner::UUID, lease_token=:token::UUID, lease_until=(clock_timestamp() + :lease), ownership_epoch=(oncefence.work_items.ownership_epoch + :ownership_epoch_1), changed_at=clock_timestamp() WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state = :state_1 RETURNING oncefence.work_items.ownership_epoch;

-- LEAVE
UPDATE oncefence.work_items SET state=:target, via=:trigger, run_after=coalesce(:due, oncefence.work_items.run_after), lease_owner=:lease_owner::UUID, lease_token=:lease_token::UUID, lease_until=:lease_until, failure_class=:why, summary=:told, changed_at=clock_timestamp() WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state = :state_1 AND oncefence.work_items.lease_token = :of_token::UUID AND oncefence.work_items.ownership_epoch = :of_epoch;

-- BRING_FORWARD
UPDATE oncefence.work_items SET run_after=:due WHERE oncefence.work_items.org_id = :of_org AND oncefence.work_items.work_id = :of_work::UUID AND oncefence.work_items.state IN ('pending', 'retry') AND oncefence.work_items.run_after > :due;
