"""
A hostile provider with a ledger: it answers as HubSpot's contacts API does, and breaks on request.

It stands apart from the rest of the project and imports none of it, so that the oracle shares no
code with what it judges (C32). `python -m oncefence.simulator` starts it; `ledger.read_ledger`
reads what it wrote.
"""
