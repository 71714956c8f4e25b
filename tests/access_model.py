"""Who may see what, as the documentation says it and as naively as can be: to be compared with what readers do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

URIS = ("a.md", "x/b.md", "x/c.md")
GROUPS = ("g", "h", "i")
MATCHED = {"docs/a.md": ("a.md",), "docs/x/**": ("x/b.md", "x/c.md"), "**/c.md": ("x/c.md",), "docs/*": ("a.md",)}
Allowed = frozenset[str] | None


@dataclass
class Model:
    """What the documentation says, naively: by dictionaries and loops, one document at a time.

    Attributes:
        snapshots: by name, the groups of each document.
        today: who may see a document now, as far as anything was said.
    """

    snapshots: dict[str, dict[str, Allowed]] = field(default_factory=dict)
    stated: dict[str, dict[str, Allowed]] = field(default_factory=dict)
    current: str = ""
    today: dict[str, Allowed] = field(default_factory=dict)
    buried: set[str] = field(default_factory=set)

    def granted(self, world: Any, uri: str) -> Allowed:
        for match, groups in world["rules"]:
            if uri in MATCHED[match]:
                return frozenset(groups)
        sidecar = world["sidecars"].get(uri)
        return None if sidecar is None else frozenset(sidecar)

    def plan(self, world: Any, stated: dict[str, Allowed]) -> dict[str, Allowed]:
        """Take away what is no longer said, and give nothing."""
        now: dict[str, Allowed] = {}
        for uri in world["front"]:
            if uri not in self.buried:
                granted = self.granted(world, uri)
                now[uri] = stated.get(uri) if granted is None else granted
        in_use = any(groups is not None for groups in now.values())
        published = self.snapshots.get(self.current, {})
        for uri, groups in now.items():
            row = self.today.get(uri)
            if groups is not None:
                self.today[uri] = groups if row is None else row & groups
            elif in_use and (row is not None or published.get(uri) is not None):
                self.today[uri] = frozenset()
        for uri in {uri for snapshot in self.snapshots.values() for uri in snapshot} - now.keys():
            # Gone from its source and still served: by rules alone, since its sidecar may be gone too.
            granted = self.granted({**world, "sidecars": {}}, uri)
            if granted is not None:
                row = self.today.get(uri)
                self.today[uri] = granted if row is None else row & granted
        return now

    def publish(self, name: str, world: Any) -> None:
        front = {uri: None if one is None else frozenset(one) for uri, one in world["front"].items()}
        now = self.plan(world, front)
        in_use = any(groups is not None for groups in now.values())
        for uri, groups in now.items():
            if groups is not None or not in_use:
                self.today[uri] = groups
        self.stated[name] = {uri: groups for uri, groups in front.items() if uri not in self.buried}
        self.snapshots[name] = {
            uri: front[uri] if self.granted(world, uri) is None else self.granted(world, uri)
            for uri in front
            if uri not in self.buried
        }
        self.current = name

    def may_see(self, name: str, uri: str, members: frozenset[str]) -> bool:
        snapshot = self.snapshots[name]
        if uri in self.buried:
            return False
        if snapshot[uri] is None:
            if any(groups is not None for groups in snapshot.values()):
                return False
        elif not snapshot[uri] & members:  # type: ignore[operator]
            return False
        today = self.today.get(uri)
        return today is None or bool(today & members)
