"""
A hostile provider with a ledger: it speaks as a provider does, and breaks on request.

HubSpot, Outreach and Stripe are built in, any other is spoken from its pack. It stands apart from
the rest of the project and imports none of it, so that the oracle shares no code with what it
judges (C32). `python -m oncefence.simulator` starts it, `in_process.simulating` does within a
test, and `ledger.read_ledger` reads what it wrote.
"""
