"""The errors of Glossator and their exit codes (ARCHITECTURE.md, "Errors").

Two questions decide what happens to a failure, and the class answers both: *would the same input work
another time* (``TransientError``: retried) *or never* (``PermanentError``: the document is quarantined),
and *did something go wrong, or did we decline* (``PlanRefused``, ``PublishRefused``).

Each message says what happened, to which document, and what to do next.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the command line returns to the shell."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    QUARANTINED = 3
    REFUSED = 4


class GlossatorError(Exception):
    """Base of every error that we raise on purpose.

    Args:
        what: one sentence, what happened.
        document: the URI of the document that it happened to, if it was one.
        hint: what the reader can do next; a command where there is one.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, what: str, *, document: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.document = document
        self.hint = hint

    @property
    def message(self) -> str:
        """What happened and what to do next, without the document: for records that name it anyway."""
        return f"{self.what} -> {self.hint}" if self.hint else self.what

    @property
    def lines(self) -> tuple[str, ...]:
        """What a terminal shows, a line each; a line break within one is part of a name."""
        return (str(self),)

    def __str__(self) -> str:
        return f"{self.document}: {self.message}" if self.document else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword arguments do not survive the default pickling, and Prefect pickles exceptions.
        return (_rebuild, (type(self), self.what, self.document, self.hint))


def _rebuild(cls: type[GlossatorError], what: str, document: str | None, hint: str | None) -> GlossatorError:
    return cls(what, document=document, hint=hint)


class PermanentError(GlossatorError):
    """This input can never work: quarantine the document and go on."""


class TransientError(GlossatorError):
    """The same call may work later: retry it, then end the run with everything done so far kept."""


class Overtaken(TransientError):
    """Somebody else published since the plan was made; nothing of theirs was overwritten."""

    def __init__(self, what: str, *, document: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, document=document, hint=hint or "run the same command again: finished parts are reused")


class PlanRefused(GlossatorError):
    """The plan would do something that nobody asked for; nothing was changed."""

    exit_code = ExitCode.REFUSED


class PublishRefused(GlossatorError):
    """The candidate is not fit to serve; the published snapshot stays."""

    exit_code = ExitCode.REFUSED


class UsageError(GlossatorError):
    """The command or the configuration is wrong."""

    exit_code = ExitCode.USAGE


class WrongSettings(UsageError):
    """Settings are wrong; ``what`` has a line for each."""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(str(self).split("\n"))
