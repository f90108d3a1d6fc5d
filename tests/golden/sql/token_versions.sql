-- ADD
INSERT INTO oncefence.token_versions (org_id, generation_id, version, ciphertext, made_at, refresh_ciphertext, expires_at, refresh_expires_at, made_because) VALUES (:org_id, :generation_id::UUID, :version, :ciphertext, :made_at, :refresh_ciphertext, :expires_at, :refresh_expires_at, :made_because);

-- IS_THERE
SELECT EXISTS (SELECT *
FROM oncefence.token_versions
WHERE oncefence.token_versions.org_id = :of_org AND oncefence.token_versions.generation_id = :of_generation::UUID AND oncefence.token_versions.version = :of_version) AS anon_1;
