"""What the client, the record and the ledger see of each fault; `--list-faults` prints it."""

from collections.abc import Mapping

from oncefence.simulator.faults import Fault, ScriptedFault

FAULT_TEXTS: Mapping[Fault | ScriptedFault, str] = {
    Fault.REFUSE: "The next connections are reset at accept, or the port is closed for a time. "
    "Never by contact: nobody knows at accept what a connection will ask for.",
    Fault.RESET_BEFORE_READ: "RST with the request still unread in the socket; not applied.",
    Fault.RESET_MID_READ: "RST after a part of the request was read; not applied.",
    Fault.RESET_BEFORE_ANSWER: "RST after the whole request was read; not applied.",
    Fault.RESET_AFTER_COMMIT: "Applied, then RST.",
    Fault.LOST_ANSWER: "Applied, then silence until the client gives up. "
    "A later read finds the value.",
    Fault.LATE_ANSWER: "Applied only after delay_s, or without one when the client has given up; "
    "then answered.",
    Fault.NO_EFFECT_HANG: "Silence until the client gives up; never applied. "
    "A later read finds it unchanged.",
    Fault.RATE_LIMIT_429: "429, with Retry-After only where the rule has retry_after; not applied.",
    Fault.SERVER_ERROR_BEFORE_COMMIT: "500 or the rule's 5xx status; not applied.",
    Fault.SERVER_ERROR_AFTER_COMMIT: "500 or the rule's 5xx status; applied all the same.",
    Fault.CUT_BODY: "Applied; the body ends before its announced length.",
    Fault.WRONG_ID: "Applied to the right record; the answer names another.",
    Fault.DRIP: "Applied; the answer comes one byte each delay_s (0.2 s without one).",
    Fault.GARBLED: "Applied; the answer is a success with a body that is not JSON.",
    Fault.REJECT_400: "400 or the rule's 4xx status with a validation error; not applied.",
    Fault.UNAUTHORIZED_401: "401 although the token is right; not applied.",
    Fault.OVERWRITTEN: "Applied (unless the rule has apply: false), then a person edits the same "
    "fields, and the client gets no answer. A later read finds a third value and a later time.",
    ScriptedFault.INDEX_LAG: "The search or list is answered from an index that is lag_s old "
    "(60 s without one): what was written since is missing.",
    ScriptedFault.CAPPED_SEARCH: "The search or list shows cap records (1 without it) and says "
    "that these are all.",
    ScriptedFault.IGNORED_FILTER: "The search or list is answered as if it had no filter.",
    ScriptedFault.ERROR_INSIDE_200: "A success status around the provider's error document; "
    "not applied unless the rule has apply: true.",
    ScriptedFault.SECONDLY_LIMIT_429: "429 of the limit per second, in the provider's words; "
    "not applied.",
    ScriptedFault.DAILY_LIMIT_429: "429 of the limit per day, in the provider's words; "
    "not applied.",
    ScriptedFault.QUOTA_SPENT: "Applied and answered in full; the rate headers say that nothing "
    "is left.",
    ScriptedFault.MAINTENANCE_503: "503 as the provider sends it while it is being maintained; "
    "not applied.",
    ScriptedFault.REDIRECT_301: "301 to location, or back to the same place; not applied.",
    ScriptedFault.REDIRECT_302: "302 to location, or back to the same place; not applied.",
    ScriptedFault.REDIRECT_303: "303 to location, or back to the same place; not applied.",
    ScriptedFault.REDIRECT_307: "307 to location, or back to the same place; not applied.",
    ScriptedFault.REDIRECT_308: "308 to location, or back to the same place; not applied.",
    ScriptedFault.DUPLICATE_APPLY: "Applied twice, or two records made; answered once.",
    ScriptedFault.KEY_EXPIRY: "The idempotency key of the request is forgotten before its time, "
    "so that the repeat is applied again. It waits for a request whose key is kept.",
    ScriptedFault.ACCOUNT_SWITCH: "The token means another account, which has no such record; "
    "with apply: true it has one of the same id, and that one is changed.",
    ScriptedFault.CLOCK_SKEW: "Applied and answered in full; Date and the change time are skew_s "
    "off (-300 s without one).",
    ScriptedFault.HUGE_BODY: "Applied; a good answer is followed by size_mib of blanks (256 "
    "without one), in chunks or with framing: length under an announced length.",
    ScriptedFault.CUT_GZIP: "Applied; the answer is gzip that ends in the middle, under a length "
    "that fits it.",
    ScriptedFault.CUT_CHUNKED: "Applied; the whole answer comes in one chunk, and the last, empty "
    "chunk never does.",
    ScriptedFault.EMPTY_204: "Applied; 204 without a body.",
}
