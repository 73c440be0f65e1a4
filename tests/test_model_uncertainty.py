"""Draws that carry the uncertainty of the model: against closed forms, and what they must keep to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from diffputer import DiffPuter
from diffputer.errors import SettingError
from diffputer.models.base import RowBatch
from diffputer.models.conditional import engine
from diffputer.models.conditional.gaussian import VARIANTS, LinearExpert, Variants
from diffputer.models.conditional.gaussian_em import MissingPatterns, em_round, invert

SLOPE, N = 0.8, 300


def regression_table(n: int = N, seed: int = 0) -> pd.DataFrame:
    """x is complete, y = 0.8 x + 0.6 noise is missing in every second row."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = SLOPE * x + np.sqrt(1 - SLOPE**2) * rng.normal(size=n)
    y[::2] = np.nan
    return pd.DataFrame({"x": x, "y": y})


def as_rows(z: np.ndarray) -> RowBatch:
    values = torch.from_numpy(np.nan_to_num(z).astype(np.float32))
    known = torch.from_numpy(~np.isnan(z))
    return RowBatch(values, values, known, torch.zeros(len(z), 0, dtype=torch.int64))


def fitted_copula(z: np.ndarray) -> LinearExpert:
    copula = LinearExpert("copula", z.shape[1], [])
    copula.fit(as_rows(z), 1e-5)
    return copula


def quick(**given: object) -> DiffPuter:
    settings = {"quality": "fast", "boosted_trees": 0, "max_steps": 60, "mlp_width": 16, "random_state": 0}
    return DiffPuter(**{**settings, "device": "cpu", "progress": False, **given})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def mixed() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    a = rng.normal(size=120)
    df = pd.DataFrame({"a": a, "b": a + rng.normal(size=120), "c": np.where(a > 0, "yes", "no")})
    return df.mask(rng.random(df.shape) < 0.3)


@pytest.fixture(scope="module")
def fitted(mixed: pd.DataFrame) -> DiffPuter:
    return quick().fit(mixed)


class TestVariants:
    """Reweighted copulas have the distribution of the estimate."""

    def slopes(self, z: np.ndarray) -> np.ndarray:
        copula, variants = fitted_copula(z), Variants(2)
        found = []
        for seed in range(10):
            variants.fit(copula, as_rows(z), seed)
            found.append((variants.covariances[:, 0, 1] / variants.covariances[:, 0, 0]).numpy())
        return np.concatenate(found)

    def test_slopes_vary_as_least_squares_say(self) -> None:
        # The rows without y say nothing of the slope: its variance is s^2 / sum (x - mean)^2 of the others.
        z = regression_table().to_numpy()
        x, y = z[1::2].T
        slope, level = np.polyfit(x, y, 1)
        exact = np.std(y - slope * x - level, ddof=2) / np.sqrt(((x - x.mean()) ** 2).sum())
        found = self.slopes(z)
        assert np.std(found) == pytest.approx(exact, rel=0.2)
        assert np.mean(found) == pytest.approx(slope, abs=0.03)

    def test_part_of_the_rows_stands_for_a_longer_table(self, monkeypatch: pytest.MonkeyPatch) -> None:
        z = regression_table(1_200).to_numpy()
        whole = np.std(self.slopes(z))
        monkeypatch.setattr("diffputer.models.conditional.gaussian.MOST_ROWS", 300)
        assert np.std(self.slopes(z)) == pytest.approx(whole, rel=0.2)

    def test_every_variant_is_a_covariance(self) -> None:
        rng = np.random.default_rng(0)
        z = np.where(rng.random((40, 30)) < 0.4, np.nan, rng.normal(size=(40, 30)))
        variants = Variants(30)
        variants.fit(fitted_copula(z), as_rows(z), 0)
        assert (torch.linalg.eigvalsh(variants.covariances) > 0).all()

    def test_draws_beyond_the_variants_have_models_of_their_own(self) -> None:
        z = regression_table(200).to_numpy()
        copula, variants = fitted_copula(z), Variants(2)
        variants.fit(copula, as_rows(z), 0)
        few, many = variants.of_draws(copula, range(5)), variants.of_draws(copula, range(400))
        slopes = torch.stack([one.covariance[0, 1] / one.covariance[0, 0] for one in many])
        fit = copula.covariance[0, 1] / copula.covariance[0, 0]
        assert all(torch.equal(a.covariance, b.covariance) for a, b in zip(few, many, strict=False))
        assert len(slopes.unique()) == 400
        # As wide as the variants are around the fit, and around the fit: 380 mixtures, four standard errors.
        wide = float((slopes[:20] - fit).square().mean().sqrt())
        assert float((slopes[20:] - fit).square().mean().sqrt()) == pytest.approx(wide, rel=0.2)
        assert abs(float(slopes[20:].mean() - fit)) < 4 * wide / 380**0.5

    def test_weights_count_rows(self) -> None:
        # A row of weight two is the same as two of weight one.
        z = regression_table(30).to_numpy()
        weights = torch.ones(30, dtype=torch.float64)
        weights[:10] = 2
        copula = LinearExpert("copula", 2, [])
        once, twice = (copula.latent(as_rows(rows)) for rows in (z, np.concatenate([z, z[:10]])))
        start = torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
        weighted = em_round(once[0], MissingPatterns(once[1]), *start, 0.1, weights)
        counted = em_round(twice[0], MissingPatterns(twice[1]), *start, 0.1)
        for a, b in zip(weighted, counted, strict=True):
            assert torch.allclose(a, b)

    def test_expectations_are_those_of_the_regression_on_what_is_known(self) -> None:
        rng = np.random.default_rng(1)
        root = rng.normal(size=(5, 5))
        S, m = torch.from_numpy(root @ root.T + np.eye(5)), torch.from_numpy(rng.normal(size=5))
        known = torch.from_numpy(rng.random((40, 5)) > 0.5)
        values = torch.from_numpy(rng.normal(size=(40, 5))) * known
        expected, _ = MissingPatterns(known).expect(values, m, invert(S))
        for row in range(40):
            k, u = known[row], ~known[row]
            slope = S[u][:, k] @ torch.linalg.inv(S[k][:, k])
            assert torch.allclose(expected[row, u], slope @ (values[row, k] - m[k]), atol=1e-4)
            assert torch.allclose(expected[row, k], values[row, k] - m[k])


class TestPooledVariance:
    """y given x: draws of a linear model, whose posterior is known."""

    @pytest.fixture(scope="class")
    def between(self) -> dict[str, tuple[float, float, float]]:
        """Variance between draws of the mean of filled cells, pooled variance and estimate of the slope."""
        df = regression_table()
        imputer = quick(max_steps=1).fit(df)
        pool = imputer._result.engine.model.pool  # the exact model, as if held-out cells knew
        for weights in (pool.weights, pool.kernel_weights):
            weights.zero_()
        pool.weights[1] = pool.kernel_weights[0] = pool.temperature[:] = 1.0
        found = {}
        for kind in ("none", "linear"):
            draws = imputer.set_params(model_uncertainty=kind).sample(df, n_draws=VARIANTS)
            pooled = draws.pool(lambda d: tuple(part[:1] for part in _slope(d))).table
            between = np.var([d["y"][::2].mean() for d in draws], ddof=1)
            found[kind] = between, pooled["std_error"].iloc[0] ** 2, pooled["estimate"].iloc[0]
        return found

    def test_means_of_filled_cells_vary_as_the_posterior_says(self, between: dict[str, tuple]) -> None:
        # Var(mean of n/2 filled cells) = s^2 / (n/2) of their own noise + s^2 / (n/2) of the fitted line.
        noise = (1 - SLOPE**2) / (N / 2)
        assert 0.4 * noise < between["none"][0] < 1.6 * noise
        assert 1.1 * noise < between["linear"][0] < 3.2 * noise

    def test_the_pooled_variance_is_that_of_the_maximum_likelihood_estimate(
        self, between: dict[str, tuple]
    ) -> None:
        exact = (1 - SLOPE**2) / (N / 2)  # of the slope: rows without y say nothing of it
        assert between["linear"][1] == pytest.approx(exact, rel=0.45)
        assert between["none"][1] < 0.95 * between["linear"][1]


def _slope(d: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    line, covariance = np.polyfit(d["x"], d["y"], 1, cov=True)
    return line, covariance.diagonal()


class TestKeeping:
    """What holds with every kind of model uncertainty."""

    def test_observed_cells_and_levels_stay(self, fitted: DiffPuter, mixed: pd.DataFrame) -> None:
        for table in fitted.sample(mixed, n_draws=3):
            assert not table.isna().any().any()
            assert (table["c"].isin(["yes", "no"])).all()
            pd.testing.assert_frame_equal(table.where(mixed.notna()), mixed, check_dtype=False)

    def test_draws_do_not_depend_on_what_else_is_drawn(
        self, fitted: DiffPuter, mixed: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        many = fitted.sample(mixed, n_draws=VARIANTS + 2)
        few = fitted.sample(mixed, n_draws=2)
        assert all(few[k].equals(many[k]) for k in range(2))
        distinct = mixed.drop_duplicates(keep=False)  # equal rows have draws of their own, in order
        assert fitted.sample(distinct, n_draws=2)[1].equals(many[1].loc[distinct.index])
        monkeypatch.setitem(engine.BLOCK, "cpu", 64)
        assert fitted.sample(mixed, n_draws=2)[1].equals(few[1])

    def test_linear_and_none_differ_only_where_something_was_missing(
        self, fitted: DiffPuter, mixed: pd.DataFrame
    ) -> None:
        before = fitted.transform(mixed)
        linear = fitted.sample(mixed, n_draws=2)
        none = fitted.set_params(model_uncertainty="none").sample(mixed, n_draws=2)
        assert before.equals(fitted.transform(mixed))
        fitted.set_params(model_uncertainty="linear")
        assert not linear[0]["b"].equals(none[0]["b"])
        assert linear[0]["b"][mixed["b"].notna()].equals(none[0]["b"][mixed["b"].notna()])

    @pytest.mark.filterwarnings("ignore:Rows should be like")  # a column is wholly missing
    def test_bounds_hold_after_the_shift(self, mixed: pd.DataFrame) -> None:
        imputer = quick(bounds={"b": (-1.0, 1.0)}).fit(mixed.assign(b=mixed["b"].clip(-1, 1)))
        for table in imputer.sample(mixed.assign(b=np.nan), n_draws=3):
            assert table["b"].between(-1, 1).all()

    def test_a_saved_imputer_draws_the_same(
        self, fitted: DiffPuter, mixed: pd.DataFrame, tmp_path: Path
    ) -> None:
        fitted.save(tmp_path / "model")
        again = DiffPuter.load(tmp_path / "model", device="cpu")
        assert again.sample(mixed, n_draws=2)[1].equals(fitted.sample(mixed, n_draws=2)[1])

    def test_without_held_out_cells_there_is_no_copula_to_vary(
        self, mixed: pd.DataFrame, caplog: pytest.LogCaptureFixture
    ) -> None:
        imputer = quick(held_out=0.0, max_steps=5).fit(mixed)
        with caplog.at_level("INFO", logger="diffputer"):
            linear = imputer.sample(mixed, n_draws=1)
        assert [line for line in caplog.messages if "model_uncertainty='bootstrap'" in line]
        assert "model uncertainty none: " in repr(linear)
        none = imputer.set_params(model_uncertainty="none").sample(mixed, n_draws=1)
        assert linear[0].equals(none[0])
        assert "model uncertainty" not in repr(none)

    @pytest.mark.parametrize("n_columns", [4, 24, 70])
    def test_the_model_varies_however_many_columns_and_little_time_there_are(self, n_columns: int) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(60, 2)) @ rng.normal(size=(2, n_columns))
        x += 0.3 * rng.normal(size=x.shape)
        x[rng.random(x.shape) < 0.2] = np.nan
        draws = quick(time_budget=1e-6).fit(x).sample(x, n_draws=2)
        assert "model uncertainty none: " not in repr(draws)
        assert all(np.isfinite(draw).all() for draw in draws)

    def test_nothing_is_said_where_the_model_varies(
        self, fitted: DiffPuter, mixed: pd.DataFrame, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("INFO", logger="diffputer"):
            assert "model uncertainty" not in repr(fitted.sample(mixed, n_draws=1))
        assert not [message for message in caplog.messages if "uncertainty" in message]


class TestBootstrap:
    """Models of resampled rows take turns."""

    @pytest.fixture(scope="class")
    def bootstrapped(self, mixed: pd.DataFrame) -> DiffPuter:
        return quick(model_uncertainty="bootstrap", bootstrap_models=2, max_steps=20).fit(mixed)

    def test_models_take_turns_and_the_estimate_is_of_all_rows(
        self, bootstrapped: DiffPuter, mixed: pd.DataFrame
    ) -> None:
        plain = quick(max_steps=20).fit(mixed)
        assert bootstrapped.transform(mixed).equals(plain.transform(mixed))
        five, two = bootstrapped.sample(mixed, n_draws=5), bootstrapped.sample(mixed, n_draws=2)
        assert all(two[k].equals(five[k]) for k in range(2))
        assert len({five[k]["b"].sum() for k in range(5)}) == 5

    def test_saved_and_repeated(self, bootstrapped: DiffPuter, mixed: pd.DataFrame, tmp_path: Path) -> None:
        bootstrapped.save(tmp_path / "model")
        again = DiffPuter.load(tmp_path / "model", device="cpu")
        assert again.sample(mixed, n_draws=3)[2].equals(bootstrapped.sample(mixed, n_draws=3)[2])

    def test_the_paper_engine_too(self, mixed: pd.DataFrame) -> None:
        imputer = DiffPuter(
            engine="paper", quality="fast", model_uncertainty="bootstrap", bootstrap_models=2, em_rounds=1,
            max_steps=5, hidden_width=8, sampling_steps=3, resampling_rounds=1, random_state=0,
            device="cpu", progress=False,
        ).fit(mixed)  # fmt: skip
        draws = imputer.sample(mixed, n_draws=3)
        assert not draws[2].isna().any().any()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model_uncertainty": "all"}, "model_uncertainty must be one of 'linear', 'none', 'bootstrap'"),
        ({"bootstrap_models": 1}, r"bootstrap_models must lie in \[2, 10000\]"),
        ({"bootstrap_models": 2.5}, "bootstrap_models must be a whole number"),
    ],
)
def test_wrong_values_are_refused(given: dict[str, object], words: str, mixed: pd.DataFrame) -> None:
    with pytest.raises(SettingError, match=words):
        quick(**given).fit(mixed)


def test_bootstrap_must_be_known_at_the_fit(fitted: DiffPuter, mixed: pd.DataFrame) -> None:
    fitted.set_params(model_uncertainty="bootstrap")
    with pytest.raises(SettingError, match="Fit it again"):
        fitted.sample(mixed, n_draws=2)
    fitted.set_params(model_uncertainty="linear")
