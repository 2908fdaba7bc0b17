"""MNIST's bytes against the published hashes; damaged files; the tutorial network."""

import hashlib
import pickle

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


def save(path, arrays):
    np.savez(path, **arrays)
    return path


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


def test_hashes_are_the_published_ones(arrays):
    images = (
        b"\x00\x00\x08\x03\x00\x00\x27\x10\x00\x00\x00\x1c\x00\x00\x00\x1c"
        + arrays["x_test"].tobytes()
    )
    labels = b"\x00\x00\x08\x01\x00\x00\x27\x10" + arrays["y_test"].tobytes()
    assert hashlib.sha256(images).hexdigest().startswith("0fa7898d509279e4")
    assert hashlib.sha256(labels).hexdigest().startswith("ff7bcfd416de3373")


@pytest.mark.parametrize("name", ["x_train", "y_train", "x_test", "y_test"])
def test_one_altered_byte_is_refused(tmp_path, arrays, name):
    altered = arrays | {name: arrays[name].copy()}
    altered[name].flat[-1] ^= 1
    with pytest.raises(ValueError, match=rf"'{name}' isn't MNIST's .*restore the file"):
        mnist.load(save(tmp_path / "m.npz", altered))


def test_swapped_arrays_and_swapped_records(tmp_path, arrays):
    swapped = arrays | {"x_train": arrays["x_test"], "x_test": arrays["x_train"]}
    with pytest.raises(ValueError, match="'x_train' has type uint8 and shape"):
        mnist.load(save(tmp_path / "a.npz", swapped))
    permuted = arrays | {"y_test": np.roll(arrays["y_test"], 1)}
    with pytest.raises(ValueError, match="'y_test' isn't MNIST's t10k-labels"):
        mnist.load(save(tmp_path / "b.npz", permuted))


def test_wrong_type_missing_array(tmp_path, arrays):
    with pytest.raises(ValueError, match="'y_train' has type int64"):
        mnist.load(
            save(tmp_path / "a.npz", arrays | {"y_train": arrays["y_train"].astype(np.int64)})
        )
    with pytest.raises(ValueError, match="'y_test' is missing"):
        mnist.load(save(tmp_path / "b.npz", {k: v for k, v in arrays.items() if k != "y_test"}))


def test_missing_cut_and_foreign_files(tmp_path):
    with pytest.raises(ValueError, match=r"none.npz: there's no such file.*restore"):
        mnist.load(tmp_path / "none.npz")
    whole = mnist.DATA_FILE.read_bytes()
    for name, content in {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "text": b"version https://git-lfs.github.com/spec/v1\n",
        "damaged": whole[:5_000_000] + bytes(1000) + whole[5_001_000:],
    }.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=rf"{name}.npz: can't read .*(cut or damaged).*restore"
        ):
            mnist.load(path)
    single = tmp_path / "single.npz"
    with single.open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(ValueError, match="can't read"):
        mnist.load(single)


class _Trap:
    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_nothing_is_unpickled(tmp_path, arrays):
    pickled = tmp_path / "a.npz"
    pickled.write_bytes(pickle.dumps(_Trap()))
    with pytest.raises(ValueError, match="can't read"):
        mnist.load(pickled)
    objects = save(tmp_path / "b.npz", arrays | {"y_test": np.array([_Trap()], dtype=object)})
    with pytest.raises(ValueError, match="can't read y_test"):
        mnist.load(objects)


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
