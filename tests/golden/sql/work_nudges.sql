-- _NEW
INSERT INTO oncefence.work_nudges (next_nudge_at) VALUES ((clock_timestamp() + :wait));

-- NOTE
INSERT INTO oncefence.work_nudges (next_nudge_at) VALUES ((clock_timestamp() + :wait)) ON CONFLICT (org_id, work_id) DO UPDATE SET run_after = excluded.run_after, ownership_epoch = excluded.ownership_epoch, nudges = excluded.nudges, next_nudge_at = excluded.next_nudge_at;
