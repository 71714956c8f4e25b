"""Exceptions and error codes of the Soundings client.

The service answers a failed request with a small JSON object that holds a
code such as ``SND-2203``. This module gives each code a name and maps it to
an exception, so that callers can catch what they can mend and let the rest
through. The prose explanation of the codes lives in the API reference.
"""

from __future__ import annotations

TOKEN_EXPIRED = "SND-1011"
TOKEN_MISSING = "SND-1101"
TOKEN_REVOKED = "SND-1110"
STATION_UNKNOWN = "SND-2203"
STATION_RETIRED = "SND-2230"
WINDOW_TOO_LONG = "SND-3007"
DATUM_UNKNOWN = "SND-3070"
RATE_LIMITED = "SND-4290"
BACKFILL_RUNNING = "SND-5003"

#: Codes after which the same request may succeed if it is sent again later.
RETRYABLE = frozenset({RATE_LIMITED, BACKFILL_RUNNING})


class SoundingsError(Exception):
    """Any failure reported by the service or by the client itself.

    Attributes:
        code: the service's error code, or an empty string for local faults.
        request_id: the identifier to quote when you write to support.
    """

    def __init__(self, message: str, code: str = "", request_id: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.request_id = request_id

    @property
    def retryable(self) -> bool:
        """Tell whether waiting and sending the request again makes sense."""
        return self.code in RETRYABLE


class AuthError(SoundingsError):
    """The token is missing, has expired, or has been revoked."""


class StationError(SoundingsError):
    """The station does not exist or no longer reports."""


class RequestError(SoundingsError):
    """The request itself is wrong; sending it again will not help."""


class BusyError(SoundingsError):
    """The service asks for patience."""


_BY_CODE: dict[str, type[SoundingsError]] = {
    TOKEN_EXPIRED: AuthError,
    TOKEN_MISSING: AuthError,
    TOKEN_REVOKED: AuthError,
    STATION_UNKNOWN: StationError,
    STATION_RETIRED: StationError,
    WINDOW_TOO_LONG: RequestError,
    DATUM_UNKNOWN: RequestError,
    RATE_LIMITED: BusyError,
    BACKFILL_RUNNING: BusyError,
}


def error_from_payload(payload: dict[str, str]) -> SoundingsError:
    """Build the exception that fits an error object from the service.

    Codes that this version does not know become a plain ``SoundingsError``,
    because the service may learn new codes before its clients do.
    """
    code = payload.get("code", "")
    kind = _BY_CODE.get(code, SoundingsError)
    message = payload.get("message", "the service gave no reason")
    return kind(message, code=code, request_id=payload.get("request_id", ""))
