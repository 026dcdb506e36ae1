"""The quick preset of every experiment, and what must hold of its output."""

import pytest

from fsplaplace import datasets
from fsplaplace.experiments import get, reproduce
from fsplaplace.experiments._methods import NETWORK, PRECISION, REFINED
from fsplaplace.experiments.images import ON_FEATURES, ours

pytestmark = pytest.mark.slow


def _scores(name, out, *needed):
    for data in needed:
        try:
            datasets.fetch(data)
        except datasets.DatasetUnavailableError as error:
            pytest.skip(str(error))
    result = reproduce(get(name), preset="quick", out=out, quiet=True)
    for figure in result["figures"]:
        assert (out / figure).read_bytes().startswith(b"\x89PNG")
    return {
        (row["task"], row["method"]): {score: found["mean"] for score, found in row["scores"].items()}
        for row in result["summary"]
    }


def test_sine_posterior_is_the_exact_process_and_never_wider_than_the_prior(tmp_path):
    scores = _scores("sine", tmp_path)["length scale=0.3", REFINED]
    assert scores["std_to_gp"] < 5e-3
    assert scores["mean_to_gp"] < 2e-2
    assert scores["largest_std_over_prior"] <= 1.02


def test_mauna_loa_refined_mean_forecasts_as_the_exact_process_does(tmp_path):
    scores = _scores("mauna-loa", tmp_path, "co2")
    ours, exact = scores["linear mean", REFINED], scores["linear mean", "GP"]
    assert ours["mse"] < 8.90  # the paper's
    assert abs(ours["log_predictive_density"] - exact["log_predictive_density"]) < 0.3
    assert ours["log_predictive_density"] > scores["zero mean", "GP"]["log_predictive_density"]


def test_ocean_currents_agree_with_the_exact_process(tmp_path):
    scores = _scores("ocean", tmp_path, "gulfdrifters")
    ours, exact = scores["GulfDrifters", REFINED], scores["GulfDrifters", "GP"]
    assert ours["mse"] <= 0.0140
    assert ours["log_predictive_density"] >= exact["log_predictive_density"] - 0.05
    assert {PRECISION, NETWORK} <= {method for _, method in scores}


def test_the_neglected_share_is_a_share(tmp_path):
    for row in _scores("null-space", tmp_path).values():
        assert 0.0 <= row["share"] <= 1.0
        assert row["rank"] >= 1


def test_two_moons_falls_back_to_the_prior_away_from_the_data(tmp_path):
    scores = _scores("two-moons", tmp_path)["RBF", REFINED]
    assert scores["accuracy"] > 0.9
    assert scores["confidence_far_away"] < 0.2
    # Jensen: the average of logarithms is below the logarithm of the average.
    assert scores["expected_log_likelihood"] <= scores["log_predictive_density"]


def test_mnist_posterior_is_less_sure_of_foreign_images(tmp_path):
    """Two thousand digits and a small network: the posterior's std, and its gain over its own network, are on the foreign side."""
    scores = _scores("mnist", tmp_path, "mnist", "fashion_mnist", "kmnist")
    names = {
        variant: ours("KMNIST", variant) for variant in ("network alone", "last layer", ON_FEATURES, "all weights")
    }
    alone = scores["mnist", names["network alone"]]
    assert alone["accuracy"] > 0.8
    for variant in ("last layer", ON_FEATURES, "all weights"):
        found = scores["mnist", names[variant]]
        assert found["std_other"] > found["std_test"]
        assert found["auroc_entropy"] > alone["auroc_entropy"]
        assert found["expected_log_likelihood"] <= found["log_predictive_density"]
    for method in ("MAP", "Laplace"):
        assert scores["mnist", method]["accuracy"] > 0.8
