-- _NEW
INSERT INTO oncefence.staged_payloads (org_id, payload_address, wrapped_key, key_id, ciphertext, staged_at) VALUES (:org_id, :payload_address, :wrapped_key, :key_id, :ciphertext, :staged_at);

-- STAGE
INSERT INTO oncefence.staged_payloads (org_id, payload_address, wrapped_key, key_id, ciphertext, staged_at) VALUES (:org_id, :payload_address, :wrapped_key, :key_id, :ciphertext, :staged_at) ON CONFLICT (org_id, payload_address) DO UPDATE SET wrapped_key = coalesce(oncefence.staged_payloads.wrapped_key, excluded.wrapped_key), key_id = CASE WHEN (oncefence.staged_payloads.wrapped_key IS NULL) THEN excluded.key_id ELSE oncefence.staged_payloads.key_id END, ciphertext = CASE WHEN (oncefence.staged_payloads.wrapped_key IS NULL) THEN excluded.ciphertext ELSE oncefence.staged_payloads.ciphertext END, staged_at = clock_timestamp();

-- ERASE
UPDATE oncefence.staged_payloads SET wrapped_key=:wrapped_key WHERE oncefence.staged_payloads.wrapped_key IS NOT NULL AND oncefence.staged_payloads.staged_at < clock_timestamp() - :kept_for;

-- UNDER_OTHER_KEYS
SELECT oncefence.staged_payloads.org_id, oncefence.staged_payloads.payload_address, oncefence.staged_payloads.wrapped_key, oncefence.staged_payloads.key_id
FROM oncefence.staged_payloads
WHERE oncefence.staged_payloads.wrapped_key IS NOT NULL AND oncefence.staged_payloads.key_id != :current
 LIMIT :batch FOR NO KEY UPDATE SKIP LOCKED;

-- REWRAP
UPDATE oncefence.staged_payloads SET wrapped_key=:wrapped_key, key_id=:key_id WHERE oncefence.staged_payloads.org_id = :of_org_id AND oncefence.staged_payloads.payload_address = :of_payload_address;
