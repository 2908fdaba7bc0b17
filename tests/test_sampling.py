"""Samplers: inclusion frequencies against the binomial and hypergeometric laws, on fixed seeds."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpteach.run import NoisySGD
from dpteach.training import sampling

N, M, DRAWS = 12, 4, 6000


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def batches(sampler, n=N, m=M, draws=DRAWS, seed=0):
    generator = rng(seed)
    member = np.zeros((draws, n), dtype=bool)
    for row in member:
        row[sampler(n, m, generator).numpy()] = True
    return member


@pytest.mark.parametrize("sampler", [sampling.poisson, sampling.fixed_size])
def test_each_record_enters_with_probability_m_over_n(sampler):
    counts = batches(sampler).sum(0)
    for count in counts:
        assert stats.binomtest(int(count), DRAWS, M / N).pvalue > 1e-4


def test_pairs_are_independent_under_poisson_and_hypergeometric_under_fixed_size():
    both = {"poisson": (M / N) ** 2, "fixed_size": M * (M - 1) / (N * (N - 1))}
    for name, probability in both.items():
        member = batches(getattr(sampling, name), seed=1)
        for i, j in [(0, 1), (0, N - 1), (5, 6)]:
            count = int((member[:, i] & member[:, j]).sum())
            assert stats.binomtest(count, DRAWS, probability).pvalue > 1e-4, name


def test_batch_sizes():
    assert set(batches(sampling.fixed_size, draws=200).sum(1)) == {M}
    sizes = batches(sampling.poisson, seed=2).sum(1)
    observed = np.bincount(sizes, minlength=N + 1)[:9]
    expected = DRAWS * stats.binom.pmf(np.arange(9), N, M / N)
    tail = DRAWS - expected.sum()
    statistic = ((observed - expected) ** 2 / expected).sum() + (
        DRAWS - observed.sum() - tail
    ) ** 2 / tail
    assert stats.chi2.sf(statistic, 9) > 1e-4


def test_empty_poisson_batches_occur():
    sizes = batches(sampling.poisson, n=10, m=1, draws=2000).sum(1)
    assert stats.binomtest(int((sizes == 0).sum()), 2000, 0.9**10).pvalue > 1e-4


def test_indices_are_distinct_sorted_and_in_range():
    for sampler in (sampling.poisson, sampling.fixed_size):
        indices = sampler(60000, 256, rng(3))
        assert indices.dtype == torch.int64
        assert (indices.diff() > 0).all() and indices[0] >= 0 and indices[-1] < 60000


def test_only_the_generator_decides():
    for sampler in (sampling.poisson, sampling.fixed_size):
        torch.manual_seed(1)
        first = sampler(1000, 50, rng(7))
        torch.manual_seed(2)
        state = torch.random.get_rng_state()
        assert torch.equal(first, sampler(1000, 50, rng(7)))
        assert torch.equal(state, torch.random.get_rng_state())
        assert not torch.equal(first, sampler(1000, 50, rng(8)))


def test_whole_population():
    assert (
        sampling.poisson(7, 7, rng()).tolist()
        == sampling.fixed_size(7, 7, rng()).tolist()
        == list(range(7))
    )


def test_draw_uses_the_runs_sampler():
    facts = {"n": 100, "batch_size": 10, "steps": 1, "noise_multiplier": 1.0}
    for name, sampler in (("poisson", sampling.poisson), ("fixed-size", sampling.fixed_size)):
        run = NoisySGD(**facts, sampling=name)
        assert torch.equal(sampling.draw(run, rng(5)), sampler(100, 10, rng(5)))
    with pytest.raises(ValueError, match=r"run.n"):
        sampling.draw(NoisySGD.at_rate(0.1, steps=1, noise_multiplier=1.0), rng())


@pytest.mark.parametrize(
    "n, m", [(0, 1), (10, 0), (10, 11), (10, 2.5), (10, float("nan")), (None, 1), (10, "3")]
)
def test_bad_sizes(n, m):
    for sampler in (sampling.poisson, sampling.fixed_size):
        with pytest.raises(ValueError, match=r"^(n|batch_size) = .*isn't allowed"):
            sampler(n, m, rng())


@pytest.mark.parametrize("n", [1e14, 10**15, 2**62, 1e300])
def test_more_records_than_memory_holds_are_refused(n):
    for sampler in (sampling.poisson, sampling.fixed_size):
        with pytest.raises(ValueError, match=r"^n = .*\[1, 1e9\].*in memory"):
            sampler(n, 5, torch.Generator())


def test_wrong_kinds_are_refused():
    for sampler in (sampling.poisson, sampling.fixed_size):
        with pytest.raises(ValueError, match=r"generator = 3 isn't allowed.*torch.Generator"):
            sampler(10, 5, 3)
    with pytest.raises(ValueError, match=r"run = 'A' isn't allowed.*NoisySGD"):
        sampling.draw("A", torch.Generator())


def test_random_allocation_puts_each_record_into_one_batch():
    generator, counts = torch.Generator().manual_seed(0), torch.zeros(5)
    pairs = 0
    for _ in range(2000):
        batches = sampling.random_allocation(12, 5, generator)
        assert sorted(torch.cat(batches).tolist()) == list(range(12))
        counts += torch.tensor([0 in batch for batch in batches])
        pairs += sum(1 for batch in batches if 0 in batch and 1 in batch)
    expected = 2000 / 5  # each place is as likely as any other: a binomial's deviation is 18
    assert torch.all((counts - expected).abs() < 4.5 * 18)
    assert abs(pairs - expected) < 4.5 * 18  # records choose independently


def test_shuffled_is_a_uniform_order_cut_up():
    generator, together = torch.Generator().manual_seed(1), 0
    for _ in range(2000):
        batches = sampling.shuffled(8, 2, generator)
        assert [len(batch) for batch in batches] == [2] * 4
        assert sorted(torch.cat(batches).tolist()) == list(range(8))
        together += any(batch.tolist() == [0, 1] for batch in batches)
    assert abs(together - 2000 / 7) < 4.5 * 15.7  # one of seven others shares record 0's batch
    with pytest.raises(ValueError, match="n = 7"):
        sampling.shuffled(7, 2, generator)


def test_truncated_poisson_keeps_a_uniform_subset():
    """Probability that a record is drawn and kept, by enumeration of the others' number."""
    n, m, largest = 6, 3, 2
    generator, kept, sizes = torch.Generator().manual_seed(2), torch.zeros(n), []
    for _ in range(4000):
        batch = sampling.truncated_poisson(n, m, largest, generator)
        kept[batch] += 1
        sizes.append(len(batch))
    q = m / n
    exact = sum(
        math.comb(n - 1, c) * q**c * (1 - q) ** (n - 1 - c) * q * min(1, largest / (c + 1))
        for c in range(n)
    )
    assert max(sizes) == largest
    assert torch.all((kept / 4000 - exact).abs() < 4.5 * math.sqrt(exact * (1 - exact) / 4000))


@pytest.mark.parametrize("by", ["random-allocation", "shuffled"])
def test_epochs_are_drawn_step_by_step(by):
    run = NoisySGD(n=12, batch_size=4, steps=6, noise_multiplier=1.0, sampling=by)
    generator = torch.Generator().manual_seed(7)
    epochs = [[sampling.draw(run, generator, step) for step in range(k, k + 3)] for k in (0, 3)]
    for epoch in epochs:
        assert sorted(torch.cat(epoch).tolist()) == list(range(12))
    assert [b.tolist() for b in epochs[0]] != [b.tolist() for b in epochs[1]]
    state = generator.get_state()  # a resumed training has the same epochs
    resumed = torch.Generator().manual_seed(1)
    resumed.set_state(state)
    assert sampling.draw(run, resumed, 4).tolist() == epochs[1][1].tolist()
