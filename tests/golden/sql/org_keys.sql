-- ADD
INSERT INTO oncefence.org_keys (org_id, wrapped_key, key_id, made_at) VALUES (:org_id, :wrapped_key, :key_id, :made_at) ON CONFLICT DO NOTHING;
