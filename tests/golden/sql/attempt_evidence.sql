-- ADD
INSERT INTO oncefence.attempt_evidence (org_id, evidence_id, attempt_id, kind, start_token, outcome, may_have_applied, response_status, provider_receipt, phases, execution_status, verdict, recorded_at) VALUES (:org_id, :evidence_id::UUID, :attempt_id::UUID, :kind, :start_token::UUID, :outcome, :may_have_applied, :response_status, :provider_receipt::JSONB, :phases::JSONB, :execution_status, :verdict, :recorded_at) ON CONFLICT DO NOTHING RETURNING oncefence.attempt_evidence.evidence_id;

-- OF_ATTEMPT
SELECT oncefence.attempt_evidence.org_id, oncefence.attempt_evidence.evidence_id, oncefence.attempt_evidence.attempt_id, oncefence.attempt_evidence.kind, oncefence.attempt_evidence.start_token, oncefence.attempt_evidence.outcome, oncefence.attempt_evidence.may_have_applied, oncefence.attempt_evidence.response_status, oncefence.attempt_evidence.provider_receipt, oncefence.attempt_evidence.phases, oncefence.attempt_evidence.execution_status, oncefence.attempt_evidence.verdict, oncefence.attempt_evidence.recorded_at
FROM oncefence.attempt_evidence
WHERE oncefence.attempt_evidence.org_id = :of_org AND oncefence.attempt_evidence.attempt_id = :of_attempt::UUID ORDER BY oncefence.attempt_evidence.recorded_at;
