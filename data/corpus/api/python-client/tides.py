"""Helpers for series of water levels: gaps, turning points and residuals.

Nothing in here talks to the network. All functions take plain lists of
``Sample`` in rising order of time and leave their arguments untouched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

#: Readings arrive every six minutes.
STEP = timedelta(minutes=6)

#: Longest gap that may be bridged by interpolation. Beyond it the curve of
#: the tide differs from a straight line by more than the gauge's own error.
MAX_BRIDGE = timedelta(minutes=18)

#: High and low water closer together than this are waves, not tides.
MIN_HALF_TIDE = timedelta(hours=3)

#: Speed of the principal lunar constituent, in degrees an hour.
M2_SPEED = 28.9841042


@dataclass(frozen=True, slots=True)
class Sample:
    """A height in metres above chart datum at a moment in UTC."""

    time: datetime
    height_m: float


def find_gaps(samples: Sequence[Sample]) -> list[tuple[datetime, datetime]]:
    """Return the start and end of every stretch without readings.

    Half a step of lateness is forgiven, so jitter in the stamps is no gap.
    """
    limit = STEP * 1.5
    pairs = pairwise(samples)
    return [(a.time, b.time) for a, b in pairs if b.time - a.time > limit]


def bridge_gaps(samples: Sequence[Sample]) -> list[Sample]:
    """Fill short gaps with straight lines and leave the long ones open."""
    filled: list[Sample] = list(samples[:1])
    for before, after in pairwise(samples):
        width = after.time - before.time
        if STEP * 1.5 < width <= MAX_BRIDGE:
            filled.extend(_between(before, after))
        filled.append(after)
    return filled


def turning_points(samples: Sequence[Sample]) -> list[Sample]:
    """Return high and low waters in order, ignoring short wiggles."""
    turns: list[Sample] = []
    for left, here, right in zip(samples, samples[1:], samples[2:]):
        rises, falls = here.height_m - left.height_m, here.height_m - right.height_m
        if rises * falls <= 0:
            continue
        if not turns or here.time - turns[-1].time >= MIN_HALF_TIDE:
            turns.append(here)
    return turns


def tidal_range(samples: Sequence[Sample]) -> float:
    """Return the greatest difference between neighbouring turning points.

    Raises:
        ValueError: when the series holds fewer than two turning points, which
            means that it is shorter than about seven hours.
    """
    turns = turning_points(samples)
    if len(turns) < 2:
        raise ValueError("the series is too short to hold a tide")
    heights = [turn.height_m for turn in turns]
    return max(abs(b - a) for a, b in pairwise(heights))


def inverse_barometer(pressure_hpa: float, mean_hpa: float = 1013.25) -> float:
    """Return the static rise of the sea, in metres, under low air pressure.

    The factor of 0.00993 m per hectopascal holds for sea water of 1,027 kg
    per cubic metre. It ignores wind, which is usually the greater part.
    """
    return (mean_hpa - pressure_hpa) * 0.00993


def m2_height(amplitude_m: float, phase_deg: float, hours: float) -> float:
    """Return the height of the M2 wave ``hours`` after its epoch."""
    angle = math.radians(M2_SPEED * hours - phase_deg)
    return amplitude_m * math.cos(angle)


def _between(before: Sample, after: Sample) -> list[Sample]:
    """Lay evenly spaced samples strictly between two others."""
    count = round((after.time - before.time) / STEP) - 1
    slope = (after.height_m - before.height_m) / (count + 1)
    spacing = (after.time - before.time) / (count + 1)
    return [Sample(before.time + spacing * k, before.height_m + slope * k) for k in range(1, count + 1)]
