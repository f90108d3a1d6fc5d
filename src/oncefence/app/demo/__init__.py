"""The demo: real commands, a hostile provider, a worker killed in mid-send, and the count."""
