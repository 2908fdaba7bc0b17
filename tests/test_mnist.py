"""MNIST's bytes against the published hashes; damaged files; the tutorial network."""

import hashlib
import pickle
import struct

import numpy as np
import pytest
import torch

from dpteach.training import mnist


@pytest.fixture(scope="module")
def data():
    return mnist.load()


@pytest.fixture(scope="module")
def arrays():
    with np.load(mnist.DATA_FILE, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive}


def test_shapes_types_and_ranges(data):
    for x, y, n in ((data.x_train, data.y_train, 60000), (data.x_test, data.y_test, 10000)):
        assert x.shape == (n, 1, 28, 28) and x.dtype == torch.float32
        assert y.shape == (n,) and y.dtype == torch.int64
        assert x.min() == 0 and x.max() == 1
        assert sorted(y.unique().tolist()) == list(range(10))


def test_known_facts_of_mnist(data):
    assert data.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.y_train.bincount().tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert (
        round(data.x_train.double().mean().item(), 4) == 0.1307
    )  # the constants everyone normalises with
    assert round(data.x_train.double().std().item(), 4) == 0.3081


# array: the first number of the IDX file it came from, and that file's published SHA-256
PUBLISHED = {
    "x_train": (2051, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "y_train": (2049, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "x_test": (2051, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "y_test": (2049, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_each_array_is_the_published_file_to_the_byte(arrays, name):
    first, sha256 = PUBLISHED[name]
    assert arrays[name].dtype == np.uint8
    header = struct.pack(f">{1 + arrays[name].ndim}i", first, *arrays[name].shape)
    assert hashlib.sha256(header + arrays[name].tobytes()).hexdigest() == sha256


def test_any_other_file_is_refused_in_one_line(tmp_path, arrays):
    """One byte changed at either end or in the middle, cut, empty, another archive; nothing is unpickled."""
    whole = mnist.DATA_FILE.read_bytes()
    others = {
        f"byte {i}": whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]
        for i in (0, 5_000_000, len(whole) - 1)
    }
    others |= {
        "cut": whole[:-1],
        "longer": whole + b"x",
        "empty": b"",
        "pickle": pickle.dumps(_Trap()),
    }
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            ValueError, match=rf"{name} isn't the package's MNIST file.*restore the file"
        ) as refused:
            mnist.load(tmp_path / name)
        assert "\n" not in str(refused.value)
    np.savez(tmp_path / "same.npz", **arrays)
    with pytest.raises(ValueError, match="isn't the package's MNIST file"):
        mnist.load(tmp_path / "same.npz")
    with pytest.raises(ValueError, match=r"none.npz: there's no such file.*restore"):
        mnist.load(tmp_path / "none.npz")


class _Trap:
    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_tutorial_network():
    model = mnist.tutorial_cnn(torch.Generator().manual_seed(3))
    sizes = [p.numel() for p in model.parameters()]
    assert sizes == [1024, 16, 8192, 32, 16384, 32, 320, 10] and sum(sizes) == 26010
    shapes, x = [], torch.zeros(2, 1, 28, 28)
    for layer in model:
        x = layer(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes[0] == (16, 14, 14) and shapes[2] == (16, 13, 13) and shapes[3] == (32, 5, 5)
    assert shapes[5:7] == [(32, 4, 4), (512,)] and shapes[-1] == (10,)


def test_xavier_uniform_weights_and_zero_biases():
    model = mnist.tutorial_cnn(torch.Generator().manual_seed(3))
    fans = {0: 1 * 64 + 16 * 64, 3: 16 * 16 + 32 * 16, 7: 512 + 32, 9: 32 + 10}
    for index, fan in fans.items():
        limit = (6 / fan) ** 0.5
        assert 0.97 * limit < model[index].weight.abs().max() <= limit
        assert model[index].bias.abs().max() == 0


def test_only_the_generator_decides():
    state = torch.random.get_rng_state()
    first, second, other = (mnist.tutorial_cnn(torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(first[0].weight, second[0].weight) and not torch.equal(
        first[0].weight, other[0].weight
    )
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("path", [3, 2.5, [1], b"mnist.npz"])
def test_a_path_of_the_wrong_kind_is_refused(path):
    with pytest.raises(ValueError, match=r"path = .* isn't allowed"):
        mnist.load(path)


def test_a_generator_of_the_wrong_kind_is_refused():
    for generator in (None, 3):
        with pytest.raises(ValueError, match=rf"generator = {generator} isn't allowed"):
            mnist.tutorial_cnn(generator)
