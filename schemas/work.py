"""What a step is given: where to work and on which shard. Paths and keys, never rows."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from schemas.config import Config
from schemas.snapshot import Record, Stage


class SourceSpec(Record):
    """A source: a name with a recorded root (a folder or ``s3://bucket/prefix``)."""

    name: str
    root: str


class ModelStamp(Record):
    """The embedding model as planned; a step that finds another one refuses.

    Attributes:
        identity: embed.model.model_identity.
        tokenizer: identity of its tokenizer.
        dimension: length of a vector.
        window: most tokens of an embedded text: the model's, less its special tokens and the passage prompt.
    """

    name: str
    identity: str
    tokenizer: str
    dimension: int
    window: int


class Workspace(Record):
    """Everything that is equal for all steps of a run.

    Attributes:
        lake: root folder of all collections.
        stages: digest of stage version and config for each stage that makes parts.
    """

    lake: Path
    config: Config
    model: ModelStamp
    sources: tuple[SourceSpec, ...]
    stages: dict[Stage, str]

    @property
    def collection(self) -> str:
        """Name of the collection."""
        return self.config.collection


class ShardJob(Record):
    """One shard to build.

    Attributes:
        plan: key of the PLAN table in the lake.
        load_key: key that the load part will have when no document fails.
        donors: parts whose rows may be copied when their inputs and config are the same.
        siblings: shards built in the same run that hold copies of documents of this one. Whichever embeds first
            gives its vectors to the others.
    """

    shard: int
    plan: str
    load_key: str
    donors: dict[Stage, tuple[str, ...]] = Field(default_factory=dict)
    siblings: tuple[int, ...] = ()
