-- _NEW
INSERT INTO oncefence.work_nudges (next_nudge_at) VALUES ((clock_timestamp() + :wait));

-- NOTE
INSERT INTO oncefence.work_nudges (next_nudge_at) VALUES ((clock_timestamp() + :wait)) ON CONFLICT (org_id, work_id) DO UPDATE SET run_after = excluded.run_after, ownership_epoch = excluded.ownership_epoch, nudges = excluded.nudges, next_nudge_at = excluded.next_nudge_at;

-- FORGET
UPDATE oncefence.work_nudges SET next_nudge_at=clock_timestamp() WHERE oncefence.work_nudges.org_id = :of_org AND oncefence.work_nudges.work_id = :of_work::UUID AND oncefence.work_nudges.next_nudge_at > clock_timestamp();
