-- ADD
INSERT INTO oncefence.lookups (org_id, lookup_id, execution_id, attempt_id, work_id, ownership_epoch, try, reading, verdict, grade, response_status, provider_receipt, phases, looked_at) VALUES (:org_id, :lookup_id::UUID, :execution_id::UUID, :attempt_id::UUID, :work_id::UUID, :ownership_epoch, :try_, :reading, :verdict, :grade, :response_status, :provider_receipt::JSONB, :phases::JSONB, :looked_at);

-- TRIES
SELECT count(oncefence.lookups.try) AS count_1
FROM oncefence.lookups
WHERE oncefence.lookups.org_id = :of_org AND oncefence.lookups.work_id = :of_work::UUID;
