-- _NEW
INSERT INTO oncefence.work_nudges (org_id, work_id, run_after, ownership_epoch, nudges, next_nudge_at) VALUES (:org_id, :work_id::UUID, :run_after, :ownership_epoch, :nudges, :next_nudge_at);

-- NOTE
INSERT INTO oncefence.work_nudges (org_id, work_id, run_after, ownership_epoch, nudges, next_nudge_at) VALUES (:org_id, :work_id::UUID, :run_after, :ownership_epoch, :nudges, :next_nudge_at) ON CONFLICT (org_id, work_id) DO UPDATE SET run_after = excluded.run_after, ownership_epoch = excluded.ownership_epoch, nudges = excluded.nudges, next_nudge_at = excluded.next_nudge_at;
