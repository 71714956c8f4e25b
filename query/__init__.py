"""The online path: opens a published snapshot, finds passages in it, answers from them. Writes nothing and never
imports Prefect; what is heavy (torch, Milvus) is loaded when a question needs it."""
