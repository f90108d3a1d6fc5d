-- LOCK
SELECT oncefence.executions.org_id, oncefence.executions.execution_id, oncefence.executions.command_id, oncefence.executions.status, oncefence.executions.via, oncefence.executions.attempt, oncefence.executions.settlements, oncefence.executions.failure_class, oncefence.executions.settled_by, oncefence.executions.provider_reference, oncefence.executions.evidence_grade, oncefence.executions.accepted_at, oncefence.executions.changed_at
FROM oncefence.executions
WHERE oncefence.executions.org_id = :of_org AND oncefence.executions.execution_id = :of_execution::UUID FOR UPDATE;

-- MOVE
UPDATE oncefence.executions SET status=:target, via=:trigger, settlements=(oncefence.executions.settlements + :settles), failure_class=:why, settled_by=:who, evidence_grade=:grade, changed_at=clock_timestamp() WHERE oncefence.executions.org_id = :of_org AND oncefence.executions.execution_id = :of_execution::UUID AND oncefence.executions.status = :of_status;
