"""The boosted trees: what they learn, what unknown cells do, and what does not change the answer."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from diffputer.diffusion.trees import MOST_LEVELS, BoostedTrees
from diffputer.runtime.devices import Deadline

Table = tuple[NDArray[np.float32], NDArray[np.bool_]]


def with_holes(x: NDArray[np.floating], rate: float, seed: int) -> Table:
    return x.astype(np.float32), np.random.default_rng(seed).random(x.shape) >= rate


def fitted(
    x: NDArray[np.float32], known: NDArray[np.bool_], n_levels: list[int], **options: int
) -> BoostedTrees:
    shape = {"n_trees": 60, "depth": 5} | options
    return BoostedTrees(n_levels, **shape).fit(x, known, seed=0, threads=1)


def ask(trees: BoostedTrees, x: np.ndarray, known: np.ndarray) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Predict every cell, known or not, from what is known of the others."""
    means, probabilities = [], []
    for j, n in enumerate(trees.n_levels):
        others = torch.from_numpy(known & (np.arange(known.shape[1]) != j))
        mean, levels = trees.predict(torch.from_numpy(x), others)
        place = sum((m > 0) == (n > 0) for m in trees.n_levels[:j])
        if n:
            probabilities.append(levels[place])
        else:
            means.append(mean[:, place])
    return torch.stack(means, dim=1) if means else torch.zeros(len(x), 0), probabilities


def mixed_table(n: int, seed: int = 0, rate: float = 0.2) -> Table:
    """Two numbers, a category of three levels that follows them, one of two that does not."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = np.sin(2 * a) + 0.1 * rng.normal(size=n)
    levels = np.digitize(a + 0.2 * rng.normal(size=n), [-0.5, 0.5])
    return with_holes(np.column_stack([a, b, levels, rng.integers(0, 2, n)]), rate, seed + 1)


MIXED = [0, 0, 3, 2]


def test_a_step_is_found() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(2000, 3)).astype(np.float32)
    x[:, 2] = np.where(x[:, 0] > 0.3, 1.0, -1.0)
    known = np.ones_like(x, dtype=bool)
    mean, _ = ask(fitted(x, known, [0, 0, 0]), x, known)
    far = np.abs(x[:, 0] - 0.3) > 0.05
    assert np.allclose(mean[far, 2].numpy(), x[far, 2], atol=0.05)


def test_a_sum_of_curves_is_found() -> None:
    def table(seed: int) -> NDArray[np.float32]:
        x = np.random.default_rng(seed).uniform(-1, 1, size=(4000, 4)).astype(np.float32)
        x[:, 3] = np.sin(3 * x[:, 0]) + x[:, 1] ** 2
        return x

    train, test = table(0), table(1)
    known = np.ones_like(train, dtype=bool)
    mean, _ = ask(fitted(train, known, [0] * 4, n_trees=150), test, known)
    assert np.sqrt(np.mean((mean[:, 3].numpy() - test[:, 3]) ** 2)) < 0.1 * test[:, 3].std()


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_that_a_cell_is_unknown_tells_something(value: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2)).astype(np.float32)
    known = np.ones_like(x, dtype=bool)
    known[:, 0] = rng.random(2000) < 0.5
    x[:, 1] = np.where(known[:, 0], -value, value)
    # Rows with holes that were made in training say the same of other values: only about what was learnt.
    mean, _ = ask(fitted(x, known, [0, 0]), x, known)
    assert np.abs(mean[:, 1].numpy() - x[:, 1]).mean() < 0.4
    assert (mean[:, 1].numpy() * x[:, 1] > 0).all()


def test_levels_are_predicted_and_predict() -> None:
    x, known = mixed_table(3000)
    test, shown = mixed_table(1000, seed=5)
    mean, probabilities = ask(fitted(x, known, MIXED), test, shown)
    assert [p.shape[1] for p in probabilities] == [3, 2]
    for p in probabilities:
        assert torch.allclose(p.sum(dim=1), torch.ones(1000), atol=1e-5)
        assert (p > 0).all()
    both = shown[:, 0] & ~shown[:, 2]
    assert (probabilities[0][both].argmax(dim=1).numpy() == test[both, 2]).mean() > 0.75
    only_level = shown[:, 2] & ~shown[:, 0]
    error = mean[only_level, 0].numpy() - test[only_level, 0]
    assert np.square(error).mean() < 0.5


def test_rare_levels_do_not_leak_the_target() -> None:
    """A level that occurs once knows its own row's target; others must not be misled by it."""
    rng = np.random.default_rng(0)
    n = 600
    x = np.column_stack([rng.normal(size=n), rng.integers(0, 200, n), rng.integers(0, 200, n)])
    x, known = with_holes(x, 0.0, 0)
    fresh = x.copy()
    fresh[:, 0] = rng.normal(size=n)
    known[:, 0] = rng.random(n) < 0.9
    held = ~known
    trees = BoostedTrees([0, 200, 200], n_trees=60).fit(x, known, held=held, seed=0)
    mean, _ = ask(trees, fresh, known)
    assert np.square(mean[:, 0].numpy() - fresh[:, 0]).mean() < 1.15 * fresh[:, 0].var()


def test_seed_decides_and_threads_and_blocks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    x, known = mixed_table(700)
    one = BoostedTrees(MIXED, n_trees=10).fit(x, known, seed=3, threads=1)
    many = BoostedTrees(MIXED, n_trees=10).fit(x, known, seed=3, threads=3)
    assert all(torch.equal(a, b) for a, b in zip(one.buffers(), many.buffers(), strict=True))
    other = BoostedTrees(MIXED, n_trees=10).fit(x, known, seed=4, threads=1)
    assert not torch.equal(one.leaves_0, other.leaves_0)
    mean, probabilities = ask(one, x, known)
    monkeypatch.setattr("diffputer.diffusion.trees._BLOCK", 37)
    again, in_parts = ask(one, x, known)
    assert torch.equal(mean, again)
    assert all(torch.equal(a, b) for a, b in zip(probabilities, in_parts, strict=True))
    alone, _ = ask(one, x[5:6], known[5:6])
    assert torch.equal(alone, mean[5:6])


def test_unknown_cells_may_hold_anything() -> None:
    x, known = mixed_table(500)
    spoilt = np.where(known, x, np.float32(np.nan))
    trees, same = fitted(x, known, MIXED, n_trees=5), fitted(spoilt, known, MIXED, n_trees=5)
    assert torch.equal(ask(trees, x, known)[0], ask(same, spoilt, known)[0])


def test_a_saved_state_answers_alike() -> None:
    x, known = mixed_table(500)
    trees = fitted(x, known, MIXED)
    other = BoostedTrees(MIXED, n_trees=60, depth=5)
    other.load_state_dict(trees.state_dict())
    for a, b in zip(ask(trees, x, known)[1], ask(other, x, known)[1], strict=True):
        assert torch.equal(a, b)
    assert torch.equal(ask(trees, x, known)[0], ask(other, x, known)[0])


def test_held_out_cells_end_forests_of_noise() -> None:
    rng = np.random.default_rng(0)
    x, known = with_holes(rng.normal(size=(400, 4)), 0.3, 1)
    held = known & (rng.random(x.shape) < 0.2)
    trees = BoostedTrees([0] * 4).fit(x, known & ~held, held=held, seed=0)
    assert int(trees.used.max()) < 15
    mean, _ = ask(trees, x, known & ~held)
    assert np.square(mean.numpy() - x)[held].mean() < 1.1 * np.square(x[held]).mean()


def test_ten_cells_of_noise_seldom_grow_a_whole_forest() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    known = np.ones(x.shape, dtype=bool)
    known[10:, 0] = False
    grown = [int(BoostedTrees([0, 0], n_trees=24, depth=2).fit(x, known, seed=s).used[0]) for s in range(30)]
    assert grown.count(24) < 5  # where the few cells that test it happen to agree


def test_held_out_cells_are_not_learnt_from() -> None:
    x, known = mixed_table(400)
    held = known & (np.random.default_rng(0).random(x.shape) < 0.1)
    changed = np.where(held & (np.arange(4) < 2), x + 5, x)
    one = BoostedTrees(MIXED, n_trees=4).fit(x, known & ~held, held=held, seed=0)
    two = BoostedTrees(MIXED, n_trees=4).fit(changed, known & ~held, held=held, seed=0)
    both = [min(int(a), int(b)) for a, b in zip(one.used, two.used, strict=True)]
    assert all(torch.equal(one.thresholds[j, :n], two.thresholds[j, :n]) for j, n in enumerate(both))


def test_a_column_that_was_complete_may_be_hidden_later() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3000, 1))
    x = (z + 0.5 * rng.normal(size=(3000, 4))).astype(np.float32)
    known = np.ones_like(x, dtype=bool)
    trees = fitted(x, known, [0] * 4)
    shown = known.copy()
    shown[:, :2] = False
    mean, _ = ask(trees, x, shown)
    best = np.linalg.lstsq(x[:, 2:], x[:, 0], rcond=None)
    error = np.square(mean[:, 0].numpy() - x[:, 0]).mean()
    assert error < 1.15 * best[1][0] / 3000
    nothing, _ = ask(trees, x, np.zeros_like(known))
    assert nothing.abs().max() < 0.5


def test_close_to_histogram_boosting_of_scikit_learn() -> None:
    def table(seed: int) -> Table:
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(3000, 2))
        x = np.column_stack([z[:, 0], z[:, 1], z[:, 0] * z[:, 1], np.exp(z[:, 0]), np.abs(z[:, 1])])
        return with_holes(x + 0.1 * rng.normal(size=x.shape), 0.2, seed + 100)

    (x, known), (test, shown) = table(0), table(1)
    held = known & (np.random.default_rng(7).random(x.shape) < 0.1)
    mean, _ = ask(BoostedTrees([0] * 5).fit(x, known & ~held, held=held, seed=0), test, shown)
    ours = theirs = 0.0
    for j in range(5):
        others, there, hidden = np.arange(5) != j, known[:, j] & ~held[:, j], ~shown[:, j]
        gaps = np.where(known & ~held, x, np.nan)[:, others]
        rival = HistGradientBoostingRegressor(random_state=0).fit(gaps[there], x[there, j])
        answer = rival.predict(np.where(shown, test, np.nan)[hidden][:, others])
        theirs += np.square(answer - test[hidden, j]).sum()
        ours += np.square(mean[hidden, j].numpy() - test[hidden, j]).sum()
    assert np.sqrt(ours / theirs) < 1.05


def test_better_than_means_on_the_sample() -> None:
    with files("diffputer").joinpath("data", "california.csv.gz").open("rb") as stream:
        table = pd.read_csv(stream, compression="gzip").select_dtypes("number").dropna().to_numpy()
    x, known = with_holes((table - table.mean(axis=0)) / table.std(axis=0), 0.3, 0)
    mean, _ = ask(fitted(x, known, [0] * x.shape[1]), x, known)
    assert np.square(mean.numpy() - x)[~known].mean() < 0.6 * np.square(x)[~known].mean()


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("n", [1, 12, 100])
def test_small_and_empty_tables(n: int, rate: float) -> None:
    rng = np.random.default_rng(n)
    n_levels = [0, 0, 3, MOST_LEVELS + 1, 1]
    x, known = with_holes(np.column_stack([rng.normal(size=n), np.ones(n), *[np.zeros(n)] * 3]), rate, 0)
    x[:, 2] = rng.integers(0, 3, n)
    held = ~known & (rng.random(x.shape) < 0.5)
    mean, probabilities = ask(BoostedTrees(n_levels, n_trees=5).fit(x, known, held=held, seed=0), x, known)
    assert mean.shape == (n, 2)
    assert [p.shape for p in probabilities] == [(n, 3), (n, MOST_LEVELS + 1), (n, 1)]
    for answer in (mean, *probabilities):
        assert torch.isfinite(answer).all()
    if rate < 1.0 and known[:, 1].any():
        assert torch.allclose(mean[:, 1], torch.ones(n))


def test_columns_with_few_known_cells_get_their_mean() -> None:
    x, known = mixed_table(200)
    known[9:, 0] = False
    known[9:, 2] = False
    mean, probabilities = ask(fitted(x, known, MIXED), x, known)
    assert torch.allclose(mean[:, 0], torch.tensor(x[known[:, 0], 0].mean()).expand(200))
    assert torch.equal(probabilities[0], probabilities[0][:1].expand(200, -1))


def test_of_many_columns_the_telling_ones_are_asked() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 50)).astype(np.float32)
    x[:, 0] = x[:, 48] + x[:, 35]
    known = np.ones_like(x, dtype=bool)
    trees = BoostedTrees([0] * 50, n_trees=20, depth=4).fit(x, known, seed=0, threads=1)
    mean, _ = ask(trees, x, known)
    assert np.square(mean[:, 0].numpy() - x[:, 0]).mean() < 0.3 * x[:, 0].var()


def test_no_rows_no_answers() -> None:
    x, known = mixed_table(100)
    mean, probabilities = ask(fitted(x, known, MIXED, n_trees=2), x[:0], known[:0])
    assert mean.shape == (0, 2)
    assert [p.shape for p in probabilities] == [(0, 3), (0, 2)]


def test_out_of_time_means_remain() -> None:
    x, known = mixed_table(500)
    late = BoostedTrees(MIXED).fit(x, known, seed=0, deadline=Deadline.after(0.0))
    assert not late.used.any()
    mean, _ = ask(late, x, known)
    assert torch.allclose(mean[:, 0], torch.tensor(x[known[:, 0], 0].mean()).expand(500))
    in_time = BoostedTrees(MIXED, n_trees=3).fit(x, known, seed=0, deadline=Deadline.after(1e6))
    assert in_time.used.any()


def test_a_second_fit_forgets_the_first() -> None:
    x, known = mixed_table(400)
    trees = BoostedTrees(MIXED, n_trees=8).fit(x, known, seed=0)
    trees.fit(x[:200], known[:200], seed=1)
    fresh = BoostedTrees(MIXED, n_trees=8).fit(x[:200], known[:200], seed=1)
    assert all(torch.equal(a, b) for a, b in zip(trees.buffers(), fresh.buffers(), strict=True))
