-- FIND
SELECT oncefence.handoffs.handoff_key, oncefence.handoffs.org_id, oncefence.handoffs.installation, oncefence.handoffs.capability, oncefence.handoffs.work_binding_digest, oncefence.handoffs.admission, oncefence.handoffs.outbox_id, oncefence.handoffs.payload_address, oncefence.handoffs.command_id, oncefence.handoffs.receipt_version, oncefence.handoffs.reason, oncefence.handoffs.admitted_at, oncefence.handoffs.retained_until
FROM oncefence.handoffs
WHERE oncefence.handoffs.handoff_key = :of_key AND oncefence.handoffs.org_id = :of_org;

-- REJECT
INSERT INTO oncefence.handoffs (handoff_key, org_id, installation, capability, work_binding_digest, admission, outbox_id, payload_address, reason, retained_until) VALUES (:key, :org, :of_installation, :of_capability, :digest, :admission, :outbox, :address, :why, (clock_timestamp() + :kept_for)) ON CONFLICT DO NOTHING RETURNING oncefence.handoffs.handoff_key;
