"""A small, synchronous client for the Soundings API, version 2.

Example:

    with_token = SoundingsClient(token=os.environ["SOUNDINGS_TOKEN"])
    for reading in with_token.readings("STR-01", start, end):
        print(reading.time, reading.height_m)

The client needs nothing beyond the standard library, since it also runs on
the Cormorant hub, where there is no room for more.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from errors import SoundingsError, error_from_payload

__version__ = "2.4.1"

BASE_URL = "https://api.soundings.ebbstone.example/v2"

#: The service refuses longer windows, so ``readings`` cuts them up.
MAX_WINDOW = timedelta(days=31)

#: Seconds to wait before each further attempt. Chosen so that a full hub
#: restart, which takes about two minutes, fits inside the whole sequence.
RETRY_DELAYS = (2.0, 8.0, 30.0, 90.0)

#: Seconds before a silent connection is given up.
TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Reading:
    """One water level, stamped with the middle of its burst in UTC."""

    station: str
    time: datetime
    height_m: float
    flag: int

    @property
    def is_publishable(self) -> bool:
        """Good, backfilled and recomputed readings may be shown to the public."""
        return self.flag in {1, 3, 7}


class SoundingsClient:
    """Talks to Soundings on behalf of one token.

    The client is not safe to share between threads. Make one for each; they
    are cheap and hold no connection open.
    """

    def __init__(self, token: str, base_url: str = BASE_URL) -> None:
        if not token.startswith("snd_"):
            raise ValueError("a Soundings token begins with 'snd_'")
        self._token = token
        self._base_url = base_url.rstrip("/")

    def readings(self, station: str, start: datetime, end: datetime, datum: str = "chart") -> Iterator[Reading]:
        """Yield the readings from ``start`` up to, but without, ``end``.

        Both times must carry a time zone. Windows of any length are allowed;
        they are fetched in pieces of ``MAX_WINDOW``.
        """
        if start.tzinfo is None or end.tzinfo is None:
            raise ValueError("start and end need a time zone")
        while start < end:
            stop = min(start + MAX_WINDOW, end)
            query = {"from": _stamp(start), "to": _stamp(stop), "datum": datum}
            page = self._get(f"/stations/{station}/readings", query)
            for row in page["readings"]:
                yield _reading(station, row)
            start = stop

    def latest(self, station: str) -> Reading:
        """Return the newest reading of a station, whatever its flag."""
        return _reading(station, self._get(f"/stations/{station}/latest", {}))

    def _get(self, path: str, query: dict[str, str]) -> dict:
        """Send a GET request and try again while the service says it is busy."""
        for delay in (*RETRY_DELAYS, None):
            try:
                return self._get_once(path, query)
            except SoundingsError as error:
                if delay is None or not error.retryable:
                    raise
                time.sleep(delay)
        raise AssertionError("unreachable")

    def _get_once(self, path: str, query: dict[str, str]) -> dict:
        url = f"{self._base_url}{path}?{urllib.parse.urlencode(query)}"
        headers = {
            "Authorization": f"Bearer {self._token}",
            "User-Agent": f"soundings-client/{__version__}",
        }
        request = urllib.request.Request(url, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise error_from_payload(json.load(error)) from error
        except OSError as error:
            raise SoundingsError(f"no answer from {self._base_url}") from error


def _stamp(moment: datetime) -> str:
    """Write a time the way the API wants it: UTC, whole seconds, a ``Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _reading(station: str, row: dict) -> Reading:
    moment = datetime.fromisoformat(row["time"])
    return Reading(station, moment, float(row["height_m"]), int(row["flag"]))
