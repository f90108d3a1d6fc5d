-- ADD
INSERT INTO oncefence.revocations (org_id, revocation_id, generation_id, token_version, made_by, note, started_at, settled_at, outcome, failure_class, response_status, phases) VALUES (:org_id, :revocation_id::UUID, :generation_id::UUID, :token_version, :made_by, :note, :started_at, :settled_at, :outcome, :failure_class, :response_status, :phases::JSONB);

-- SETTLE
UPDATE oncefence.revocations SET settled_at=clock_timestamp(), outcome=:with_outcome, failure_class=:with_class, response_status=:with_status, phases=:with_phases::JSONB WHERE oncefence.revocations.org_id = :of_org AND oncefence.revocations.revocation_id = :of_revocation::UUID AND oncefence.revocations.settled_at IS NULL RETURNING oncefence.revocations.generation_id;
