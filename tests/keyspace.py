"""Every key of an index: what it holds, and what it must hold for certain members. In plain Python, from the
description in ``keys.py`` and ``layout.py``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from redis import Redis

from django_zrank.codec.layout import Layout

__all__ = ["beneath", "everything", "expected", "held", "membership_of", "tie_of", "whole"]


def tie_of(text: bytes, layout: Layout) -> bytes:
    """The tie bytes that a stored member or a membership begins with."""
    if layout.width:
        return text[: layout.width]
    return text[:9] if text.startswith(b"\0") else b""


def membership_of(tie: bytes, rankings: Iterable[str], attachment: bytes = b"") -> bytes:
    names = "\0".join(sorted(rankings)).encode()
    return tie + b"\0".join(filter(None, (attachment, names)))


def score_text(score: float) -> bytes:
    """17 digits tell every double from its neighbours, and C prints them alike everywhere."""
    return f"{score:.17g}".encode()


def expected(root: str, members: Mapping[str, tuple[float, bytes]], layout: Layout) -> dict[str, Any]:
    """The keys under ``root``; ``members``: primary key as text -> score and membership."""
    rankings: dict[str, dict[bytes, float]] = defaultdict(dict)
    counts: dict[str, Counter[bytes]] = defaultdict(Counter)
    values: dict[str, dict[bytes, float]] = defaultdict(dict)
    memberships = {member.encode(): membership for member, (_, membership) in members.items() if membership}
    for member, (score, membership) in members.items():
        tie = tie_of(membership, layout)
        named = [name for name in membership[len(tie) :].split(b"\0") if name and name[:1] != b"["]
        names = [f":{name.decode()}" for name in named]
        for name in ["", *names]:
            rankings[name][tie + member.encode()] = score
            counts[name][tie + score_text(score)] += 1
            values[name][tie + score_text(score)] = score
    keys: dict[str, Any] = {f"{root}{name}": content for name, content in rankings.items()}
    if names := {name[1:].encode(): 0.0 for name in rankings if name}:
        keys[f"{root}:rankings"] = names
    if memberships:
        keys[f"{root}:memberships"] = memberships
    if layout.beside:
        keys |= {f"{root}{name}:values": content for name, content in values.items()}
        keys |= {
            f"{root}{name}:counts": {value: b"%d" % count for value, count in content.items()}
            for name, content in counts.items()
        }
    return keys


def beneath(client: Redis, root: str) -> dict[str, Any]:
    """The contents of the keys under a root, by the rest of their names."""
    return {key.removeprefix(root): held for key, held in everything(client, root).items()}


def everything(client: Redis, root: str) -> dict[str, Any]:
    """The keys under ``root`` that there are, with what they hold."""
    return _held(client, list(client.scan_iter(match=f"{root}*", count=1000)))


def held(client: Redis, key: bytes) -> Any:
    """The contents of a key."""
    return _held(client, [key])[key.decode()]


def _held(client: Redis, keys: list[bytes]) -> dict[str, Any]:
    """The contents of keys, in two round trips. DUMP would show the same hash in different orders."""
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.type(key)
    kinds = pipeline.execute()
    for key, kind in zip(keys, kinds, strict=True):
        match kind:
            case b"hash":
                pipeline.hgetall(key)
            case b"zset":
                pipeline.zrange(key, 0, -1, withscores=True)
            case b"set":
                pipeline.smembers(key)
            case _:
                pipeline.get(key)
    found = zip(keys, kinds, pipeline.execute(), strict=True)
    return {key.decode(): dict(value) if kind == b"zset" else value for key, kind, value in found}


def whole(client: Redis) -> dict[str, Any]:
    """Every key of a database with what it holds."""
    return everything(client, "")
