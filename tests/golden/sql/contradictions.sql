-- ADD
INSERT INTO oncefence.contradictions (org_id, evidence_id, execution_id, execution_status, seen_at) VALUES (:org_id, :evidence_id::UUID, :execution_id::UUID, :execution_status, :seen_at);
