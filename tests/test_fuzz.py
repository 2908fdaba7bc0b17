"""The fuzzer's own targets on known inputs, and what it has found: see tools/fuzz.py."""

import zipfile

import fuzz
import numpy as np
import pytest


@pytest.mark.parametrize("start", range(len(fuzz.STARTS)))
def test_each_command_line_to_start_from_is_answered(start, capsys):
    assert fuzz.command_line(bytes([start]))[0] == fuzz.STARTS[start].split()[0]
    fuzz.try_command(bytes([start]))


@pytest.mark.parametrize("start", range(len(fuzz.STARTS)))
def test_broken_command_lines_are_refused(start):
    gone, odd = bytes([start, 1, 180]), bytes([start, 2, fuzz.WORDS.index("nan")])
    assert len(fuzz.command_line(gone)) == len(fuzz.command_line(bytes([start]))) - 1
    for data in (b"", gone, odd, bytes([start, 4, 255, 6, 100, 8, 199, 0, 61])):
        fuzz.try_command(data)


def test_seeds_of_data(tmp_path):
    fuzz.seeds_of_data(tmp_path)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 16
    for path in files:
        fuzz.try_data(path.read_bytes())


def test_a_header_cut_in_the_middle(tmp_path):
    """Found by fuzzing: numpy's reader of headers tokenizes them as Python, whose errors are its own."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3\n"
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x_train.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    fuzz.try_data((tmp_path / "x.npz").read_bytes())


def test_findings_are_noticed(monkeypatch, tmp_path):
    from dpteach import __main__
    from dpteach.training import mnist

    monkeypatch.setattr(mnist, "load", lambda path: None)
    with pytest.raises(AssertionError, match="accepted"):
        fuzz.try_data(b"x")
    monkeypatch.setattr(mnist, "load", lambda path: np.zeros(2)[3])
    with pytest.raises(IndexError):
        fuzz.try_data(b"x")
    for printed in (
        '{"guarantees": [{"epsilon": -1.0}]}',
        '{"guarantees": [{"epsilon": [0.0, -0.1]}]}',
        "epsilon = nan",
    ):
        monkeypatch.setattr(__main__, "main", lambda words, printed=printed: print(printed) or 0)
        with pytest.raises(AssertionError):
            fuzz.try_command(bytes([0]))
    monkeypatch.setattr(__main__, "main", lambda words: 2)
    with pytest.raises(AssertionError):
        fuzz.try_command(bytes([0]))
