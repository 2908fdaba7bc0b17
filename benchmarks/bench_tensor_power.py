"""The two-sided tensor power beside dp-accounting's one-sided PLD accountant, and very long runs.

In each round both answer ε(1e-5) for the same run, one after the other, so that other work on the machine disturbs both
alike; the ratio is the median of the rounds' own ratios. Processor time of this process. dp-accounting composes
`PoissonSampledDpEvent(q, GaussianDpEvent(sigma))` at its default discretisation of 1e-4, the worse of two directions;
ours gives both ends of the bracket of one law (C_p(G), replace-one), and, in the second column of ratios, of both
directions of the same Poisson pair. Nothing is kept between rounds: the cache of brackets is emptied.

Goals: at most 0.5 of dp-accounting's time for one law; at T = 1e8 a relative width of at most 1e-3 in at most 2 s of
processor time and 500 MB, numpy and scipy included.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time

from dpteach.laws import PoissonLaw, SubsampledLaw
from dpteach.tensor_power import TensorPower, _bracket

P, DELTA, ROUNDS = 256 / 60000, 1e-5, 5
RUNS = {"A": (1.3, 3516), "B": (1.1, 14063), "C": (0.7, 10547)}  # sigma, steps
RUN_B = P * (14063 / 1e8) ** 0.5
LONG = [("p√T as in run B, σ 1.1", RUN_B, 1.1), ("p = 1e-6, σ 1.1", 1e-6, 1.1), ("p = 1e-6, σ 0.7", 1e-6, 0.7)]


def library(q, sigma, steps):
    """dp-accounting's ε: an upper bound by its PLD accountant."""
    import dp_accounting  # not needed, and large, in the processes that measure memory

    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    return dp_accounting.pld.PLDAccountant().compose(event, steps).get_epsilon(DELTA)


def ours(laws, steps):
    """Our bracket of ε."""
    _bracket.cache_clear()
    return TensorPower(laws=laws, steps=steps).epsilon(DELTA)


def timed(function, *arguments):
    """Processor time in seconds, and the result."""
    started = time.process_time()
    result = function(*arguments)
    return time.process_time() - started, result


def long_run(p, sigma, answers):
    """One bracket at T = 1e8 in a process of its own: time, both ends, peak memory of the whole process in MB."""
    seconds, ends = timed(ours, (SubsampledLaw(p, sigma),), 10**8)
    answers.put((seconds, ends, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def main():
    """Print both tables."""
    print("  run  dp-accounting  one law  ratio  both directions  ratio")
    for name, (sigma, steps) in RUNS.items():
        one = (SubsampledLaw(P, sigma),)
        both = (PoissonLaw(P, sigma, "remove"), PoissonLaw(P, sigma, "add"))
        times = []
        for _ in range(ROUNDS):
            theirs, upper = timed(library, P, sigma, steps)
            first, _ = timed(ours, one, steps)
            second, (low, high) = timed(ours, both, steps)
            assert low <= upper <= 1.001 * high
            times.append((theirs, first, second, first / theirs, second / theirs))
        theirs, first, second, ratio, ratio_both = (statistics.median(column) for column in zip(*times, strict=True))
        first_columns = f"  {name:3} {theirs * 1e3:11.0f} ms {first * 1e3:5.0f} ms {ratio:6.2f}"
        print(f"{first_columns} {second * 1e3:13.0f} ms {ratio_both:6.2f}")
    print("  T = 1e8, δ = 1e-5: time, relative width, memory")
    spawn = multiprocessing.get_context("spawn")
    for what, p, sigma in LONG:
        answers = spawn.Queue()
        process = spawn.Process(target=long_run, args=(p, sigma, answers))
        process.start()
        seconds, (low, high), memory = answers.get()
        process.join()
        print(f"  {seconds:8.2f} s {(high - low) / high:9.1e} {memory:7.0f} MB  {what}: ε in [{low:.6g}, {high:.6g}]")


if __name__ == "__main__":
    main()
