-- ADD
INSERT INTO oncefence.org_keys (org_id, wrapped_key, key_id, made_at) VALUES (:org_id, :wrapped_key, :key_id, :made_at) ON CONFLICT DO NOTHING;

-- UNDER_OTHER_KEYS
SELECT oncefence.org_keys.org_id, oncefence.org_keys.wrapped_key, oncefence.org_keys.key_id
FROM oncefence.org_keys
WHERE oncefence.org_keys.wrapped_key IS NOT NULL AND oncefence.org_keys.key_id != :current
 LIMIT :batch FOR NO KEY UPDATE SKIP LOCKED;

-- REWRAP
UPDATE oncefence.org_keys SET wrapped_key=:wrapped_key, key_id=:key_id WHERE oncefence.org_keys.org_id = :of_org_id;
