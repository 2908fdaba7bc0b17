"""The recorded table against Opacus: what it says, and that its first rows come out again."""

import json

import against_opacus
import pytest

RECORD = json.loads(against_opacus.FILE.read_text("utf-8"))
ROWS = {row["case"]: row for row in RECORD["rows"]}


def test_the_record_has_every_case_and_says_what_ran():
    assert list(ROWS) == list(against_opacus.CASES) and len(ROWS) >= 25
    assert RECORD["versions"].keys() == {"python", "torch", "opacus"} and RECORD["date"]


def test_dpteach_is_never_wrong():
    assert {row["dpteach"] for row in ROWS.values()} == {"right", "refused"}
    refused = {case for case, row in ROWS.items() if row["dpteach"] == "refused"}
    assert refused == {"embedding with max_norm", "batch normalisation", "keeps a running mean"}


@pytest.mark.parametrize("case", against_opacus.CASES)
def test_our_side_comes_out_again(case):
    assert against_opacus.verdict(case, against_opacus.by_dpteach)[0] == ROWS[case]["dpteach"]


@pytest.mark.parametrize(
    "case", ["dense layer at several positions", "tied weights", "subtracts the batch's mean"]
)
def test_some_rows_of_opacus_come_out_again(case):
    pytest.importorskip("opacus")
    assert against_opacus.verdict(case, against_opacus.by_opacus)[0] == ROWS[case]["opacus"]
