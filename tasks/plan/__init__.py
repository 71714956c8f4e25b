"""Plan: what is there, what has changed, and what it takes to publish it. Without Prefect, without torch."""
