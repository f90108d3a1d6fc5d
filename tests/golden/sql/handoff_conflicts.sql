-- ADD
INSERT INTO oncefence.handoff_conflicts (org_id, conflict_id, handoff_key, field, verb, offered_outbox_id, offered_payload_address, seen_at) VALUES (:org_id, :conflict_id::UUID, :handoff_key, :field, :verb, :offered_outbox_id, :offered_payload_address, :seen_at) ON CONFLICT DO NOTHING;
