"""Reference numbers from other programs and independent computations, in golden.json.

Each record says which program (`peer`) and function gave it, under which sampling and adjacency,
for which parameters. Nothing in it was computed by `dpteach`.
"""

import json
from pathlib import Path

__all__ = ["records", "value"]

_RECORDS = json.loads((Path(__file__).parent / "golden.json").read_text("utf-8"))


def records(function, *, peer=None, **params):
    """All records whose function's name contains `function` and whose parameters agree."""
    return [
        record
        for record in _RECORDS
        if function in record["function"]
        and (peer is None or record["peer"] == peer)
        and all(record["params"].get(key) == wanted for key, wanted in params.items())
    ]


def value(function, *, peer=None, **params):
    """The value of the one record that fits; it's an error when there's none or several."""
    found = records(function, peer=peer, **params)
    if len(found) != 1:
        raise LookupError(f"{len(found)} records fit {function!r}, {peer!r}, {params}")
    return found[0]["value"]
