-- IN_FORCE
SELECT oncefence.pauses.org_id, oncefence.pauses.pause_id, oncefence.pauses.provider, oncefence.pauses.definition, oncefence.pauses.binding_id, oncefence.pauses.paused_by, oncefence.pauses.paused_note, oncefence.pauses.paused_at, oncefence.pauses.resumed_by, oncefence.pauses.resumed_note, oncefence.pauses.resumed_at, oncefence.pauses.ramp_seconds
FROM oncefence.pauses
WHERE oncefence.pauses.org_id = :of_org AND oncefence.pauses.provider IS NOT DISTINCT FROM :of_provider AND oncefence.pauses.definition IS NOT DISTINCT FROM :of_definition AND oncefence.pauses.binding_id IS NOT DISTINCT FROM :of_binding::UUID AND oncefence.pauses.resumed_at IS NULL;

-- LOCK
SELECT oncefence.pauses.org_id, oncefence.pauses.pause_id, oncefence.pauses.provider, oncefence.pauses.definition, oncefence.pauses.binding_id, oncefence.pauses.paused_by, oncefence.pauses.paused_note, oncefence.pauses.paused_at, oncefence.pauses.resumed_by, oncefence.pauses.resumed_note, oncefence.pauses.resumed_at, oncefence.pauses.ramp_seconds
FROM oncefence.pauses
WHERE oncefence.pauses.org_id = :of_org AND oncefence.pauses.pause_id = :of_pause::UUID FOR UPDATE;

-- ADD
INSERT INTO oncefence.pauses (org_id, pause_id, provider, definition, binding_id, paused_by, paused_note, paused_at, resumed_by, resumed_note, resumed_at, ramp_seconds) VALUES (:org_id, :pause_id::UUID, :provider, :definition, :binding_id::UUID, :paused_by, :paused_note, :paused_at, :resumed_by, :resumed_note, :resumed_at, :ramp_seconds) RETURNING oncefence.pauses.org_id, oncefence.pauses.pause_id, oncefence.pauses.provider, oncefence.pauses.definition, oncefence.pauses.binding_id, oncefence.pauses.paused_by, oncefence.pauses.paused_note, oncefence.pauses.paused_at, oncefence.pauses.resumed_by, oncefence.pauses.resumed_note, oncefence.pauses.resumed_at, oncefence.pauses.ramp_seconds;

-- RESUME
UPDATE oncefence.pauses SET resumed_by=:actor, resumed_note=:why, resumed_at=clock_timestamp(), ramp_seconds=:ramp WHERE oncefence.pauses.org_id = :of_org AND oncefence.pauses.pause_id = :of_pause::UUID AND oncefence.pauses.resumed_at IS NULL RETURNING oncefence.pauses.org_id, oncefence.pauses.pause_id, oncefence.pauses.provider, oncefence.pauses.definition, oncefence.pauses.binding_id, oncefence.pauses.paused_by, oncefence.pauses.paused_note, oncefence.pauses.paused_at, oncefence.pauses.resumed_by, oncefence.pauses.resumed_note, oncefence.pauses.resumed_at, oncefence.pauses.ramp_seconds;
