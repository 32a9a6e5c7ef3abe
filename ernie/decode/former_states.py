"""States that were saved before they had a version: where their parts are now."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

# Former names of arrays, and the present ones; group 1 is what precedes the name.
_ARRAYS = (
    (r"writing/seen$", "decoder_state/hidden"),
    (r"writing/own/", "decoder_state/cache/"),
    (r"writing/", "decoder_state/"),
    (r"sound/(count|total|squares)$", r"feature_state/statistics/\2"),
    (r"sound/", "feature_state/"),
    (r"loudness$", "edges/loudness"),
    (r"memory/", "cache/"),
    (r"encoder/", "encoder_cache/"),
    (r"seen/", "source_cache/"),
    (r"own/", "target_cache/cache/"),
    (r"given$", "committed"),
    (r"(\d+)/", r"stream_states/\2/"),
)
_NAMES = {"readings": "hypotheses", "past": "trimmed"}  # of values in JSON
# Several values that stood together in one array.
_TOGETHER = {"edges": ("count", "begin", "spike", "settled"), "pause": ("lowest", "steady")}
# What is no array any more, but stands in JSON.
_PLAIN = re.compile(r"(committed|held|past|model|texts|ended|feature_state/last|statistics/count)$")


def upgraded(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the values and the arrays, under their present names, of a state that was saved without a version."""
    plain: dict[str, Any] = {}
    found = {}
    for key, array in arrays.items():
        path = key
        for former, present in _ARRAYS:
            path = re.sub(rf"(^|/){former}", rf"\g<1>{present}", path)
        start, _, name = path.rpartition("/")
        if name == "told":
            told = json.loads(str(array))
            _part(plain, start).update({_NAMES.get(each, each): value for each, value in told.items()})
        elif name == "progress":
            _part(plain, start)[name] = [json.loads(str(each)) for each in array]
        elif name in _TOGETHER:
            values = zip(_TOGETHER[name], array.tolist(), strict=True)
            _part(plain, path if name == "edges" else start).update(values)
        elif _PLAIN.search(path):
            _part(plain, start)[name] = array.tolist()
        elif name != "streams":
            found[path] = array
            _part(plain, start).setdefault(name, None)
    return _completed(plain), found


def _part(plain: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the values of the part with this path, an empty one if there is none yet."""
    for name in path.split("/") if path else ():
        plain = plain.setdefault(name, {})
    return plain


def _completed(plain: dict[str, Any]) -> dict[str, Any]:
    """Add what states of that time lack, since nothing was left to be computed in them."""
    for name, value in plain.items():
        if isinstance(value, dict):
            plain[name] = _completed(value)
    if "stream_states" in plain:
        streams = [stream for _, stream in sorted(plain["stream_states"].items(), key=lambda each: int(each[0]))]
        plain["stream_states"] = [_completed_stream(stream) for stream in streams]
    if "progress" in plain:
        count = len(plain["progress"])
        plain["target_cache"] |= {"counts": [1] * count}
        plain["searches"] = [None] * count
    if "texts" in plain:
        plain.setdefault("ended", [False] * len(plain["texts"]))
        plain.setdefault("model", "")
        count = len(plain["texts"])
        plain |= {"queues": [[]] * count, "utterances": [None] * count, "vocoder": ""}
    if "committed" in plain:
        plain = _completed_text(plain)
    return plain


def _completed_text(plain: dict[str, Any]) -> dict[str, Any]:
    plain.setdefault("past", [0] * len(plain["committed"]))
    held = plain.pop("held", [])
    if "progress" in plain["tokens"]:
        ended = [stream["ended"] for stream in plain["tokens"]["progress"]]
        held = ["" if over else own for own, over in zip(held or [" "] * len(ended), ended, strict=True)]
        plain |= {"held": held, "ended": ended, "notes": [[]] * len(ended)}
    return plain


def _completed_stream(stream: dict[str, Any]) -> dict[str, Any]:
    # From before probabilities were kept, each token has 1.
    hypotheses = [
        [tokens, vectors, *scores[:3], scores[3] if any(scores[3:4]) else [1.0] * len(tokens), *scores[4:]]
        for tokens, vectors, *scores in stream["hypotheses"]
    ]
    return stream | {"closed": stream["ended"], "hypotheses": hypotheses}
