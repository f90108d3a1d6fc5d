-- UNDER_OTHER_KEYS
SELECT oncefence.execution_keys.org_id, oncefence.execution_keys.execution_id, oncefence.execution_keys.wrapped_key, oncefence.execution_keys.key_id
FROM oncefence.execution_keys
WHERE oncefence.execution_keys.wrapped_key IS NOT NULL AND oncefence.execution_keys.key_id != :current
 LIMIT :batch FOR NO KEY UPDATE SKIP LOCKED;

-- REWRAP
UPDATE oncefence.execution_keys SET wrapped_key=:wrapped_key, key_id=:key_id WHERE oncefence.execution_keys.org_id = :of_org_id AND oncefence.execution_keys.execution_id = :of_execution_id::UUID;
