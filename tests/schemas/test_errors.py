"""Errors: what, where, what next; whole after pickling; the exit code of their kind."""

from __future__ import annotations

import pickle

import pytest

from schemas.errors import (
    ExitCode,
    GlossatorError,
    PermanentError,
    PlanRefused,
    PublishRefused,
    TransientError,
    UsageError,
)
from tasks.lake.lake import Corrupt
from tasks.lake.storage import AlreadyExists, NotFound

ALL = [
    GlossatorError,
    PermanentError,
    TransientError,
    PlanRefused,
    PublishRefused,
    UsageError,
    Corrupt,
    NotFound,
    AlreadyExists,
]


def test_the_message_names_document_event_and_next_step() -> None:
    error = PermanentError("is a scan", document="a/b.pdf", hint="run OCR first")
    assert str(error) == "a/b.pdf: is a scan -> run OCR first"


def test_without_document_and_hint_the_message_is_the_event() -> None:
    assert str(GlossatorError("the disk is full")) == "the disk is full"


@pytest.mark.parametrize("kind", ALL)
def test_pickling_keeps_class_and_parts(kind: type[GlossatorError]) -> None:
    """Prefect pickles exceptions; the class decides about a retry."""
    error = pickle.loads(pickle.dumps(kind("what", document="d.md", hint="next")))
    assert type(error) is kind
    assert (error.what, error.document, error.hint) == ("what", "d.md", "next")
    assert str(error) == "d.md: what -> next"


def test_exit_codes_are_those_of_the_manual() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 4]
    assert {kind: kind.exit_code for kind in ALL} == {
        GlossatorError: 1,
        PermanentError: 1,
        TransientError: 1,
        PlanRefused: 4,
        PublishRefused: 4,
        UsageError: 2,
        Corrupt: 1,
        NotFound: 1,
        AlreadyExists: 1,
    }


def test_permanent_and_transient_are_never_both() -> None:
    assert not issubclass(PermanentError, TransientError)
    assert not issubclass(TransientError, PermanentError)
