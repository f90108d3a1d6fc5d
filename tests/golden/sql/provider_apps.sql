-- ADD
INSERT INTO oncefence.provider_apps (org_id, app_id, provider, pack_grant, flow, client_id, ciphertext, wrapped_key, key_id, made_by, note, made_at, retired_at) VALUES (:org_id, :app_id::UUID, :provider, :pack_grant, :flow, :client_id, :ciphertext, :wrapped_key, :key_id, :made_by, :note, :made_at, :retired_at);

-- RETIRE
UPDATE oncefence.provider_apps SET retired_at=clock_timestamp() WHERE oncefence.provider_apps.org_id = :of_org AND oncefence.provider_apps.provider = :of_provider AND oncefence.provider_apps.pack_grant = :of_grant AND oncefence.provider_apps.retired_at IS NULL AND oncefence.provider_apps.client_id = :of_client RETURNING oncefence.provider_apps.app_id;

-- FIND
SELECT oncefence.provider_apps.org_id, oncefence.provider_apps.app_id, oncefence.provider_apps.provider, oncefence.provider_apps.pack_grant, oncefence.provider_apps.flow, oncefence.provider_apps.client_id, oncefence.provider_apps.ciphertext, oncefence.provider_apps.wrapped_key, oncefence.provider_apps.key_id, oncefence.provider_apps.made_by, oncefence.provider_apps.note, oncefence.provider_apps.made_at, oncefence.provider_apps.retired_at
FROM oncefence.provider_apps
WHERE oncefence.provider_apps.org_id IN (:of_org, :org_id_1) AND oncefence.provider_apps.provider = :of_provider AND oncefence.provider_apps.pack_grant = :of_grant AND oncefence.provider_apps.retired_at IS NULL AND (:of_client IS NULL OR oncefence.provider_apps.client_id = :of_client) ORDER BY oncefence.provider_apps.org_id = :org_id_2, oncefence.provider_apps.made_at DESC
 LIMIT :param_1;

-- UNDER_OTHER_KEYS
SELECT oncefence.provider_apps.org_id, oncefence.provider_apps.app_id, oncefence.provider_apps.wrapped_key, oncefence.provider_apps.key_id
FROM oncefence.provider_apps
WHERE oncefence.provider_apps.wrapped_key IS NOT NULL AND oncefence.provider_apps.key_id != :current
 LIMIT :batch FOR NO KEY UPDATE SKIP LOCKED;

-- REWRAP
UPDATE oncefence.provider_apps SET wrapped_key=:wrapped_key, key_id=:key_id WHERE oncefence.provider_apps.org_id = :of_org_id AND oncefence.provider_apps.app_id = :of_app_id::UUID;
