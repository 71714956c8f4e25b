"""How it is run for good: a server, schedules and containers."""
