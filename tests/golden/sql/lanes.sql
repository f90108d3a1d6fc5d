-- DRAW
INSERT INTO oncefence.lanes (org_id, lane_key, sequence) VALUES (:of_org, :of_lane, :sequence) ON CONFLICT (org_id, lane_key) DO UPDATE SET sequence = (oncefence.lanes.sequence + :sequence_1) RETURNING oncefence.lanes.sequence;
