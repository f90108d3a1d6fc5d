"""What the database must refuse of stored data keys: they are erased or wrapped anew, no more."""

from tests.storage.guard_statements import ORG, change, execution, said

REWRAP = "wrapped_key = '\\x00', key_id = 'x'"

CASES = (
    *(
        said("org_keys.a_kept_key", "OF023", what, change("org_keys", written, f"WHERE {ORG}"))
        for what, written in (
            ("another key", "wrapped_key = '\\x00'"),
            ("another key id", "key_id = 'x'"),
            ("erased", "wrapped_key = NULL"),
            ("another org", f"{REWRAP}, org_id = 'x'"),
            ("made at another time", f"{REWRAP}, made_at = made_at - interval '1 s'"),
        )
    ),
    *(
        said(
            "execution_keys.a_key_erasure",
            "OF023",
            what,
            *(
                change("execution_keys", one, execution("pending_execution"))
                for one in what_is_written
            ),
        )
        for what, what_is_written in (
            ("erased and wrapped anew", ("wrapped_key = NULL", REWRAP)),
            ("wrapped anew for another", (f"{REWRAP}, execution_id = '$new'",)),
        )
    ),
    *(
        said(
            "staged_payloads.a_staging",
            "OF027",
            what,
            change("staged_payloads", written, f"WHERE {ORG}"),
        )
        for what, written in (
            ("wrapped anew with other bytes", f"{REWRAP}, ciphertext = '\\x00'"),
            ("wrapped anew and kept for less", f"{REWRAP}, staged_at = staged_at - interval '1 s'"),
            ("erased under another id", "wrapped_key = NULL, key_id = 'x'"),
        )
    ),
    *(
        said(
            "binding_generations.a_generation",
            "OF025",
            what,
            *(change("binding_generations", one, f"WHERE {ORG}") for one in what_is_written),
        )
        for what, what_is_written in (
            ("another key", ("wrapped_key = '\\x00'",)),
            ("another key with the next token", ("wrapped_key = '\\x00', token_version = 2",)),
            ("another key id", ("key_id = 'x'",)),
            ("another key id with the next token", ("key_id = 'x', token_version = 2",)),
            ("wrapped anew with the same token", (REWRAP,)),
            ("wrapped anew two tokens on", (f"{REWRAP}, token_version = 3",)),
            ("erased under another id", ("state = 'retired', wrapped_key = NULL, key_id = 'x'",)),
            (
                "erased and wrapped anew",
                ("state = 'retired', wrapped_key = NULL", f"{REWRAP}, token_version = 2"),
            ),
        )
    ),
)
