"""What `describe` says about a prior, and that it warns exactly where prior and data disagree."""

import numpy as np
import pytest
from gpjax.kernels import RBF, Matern12, Matern52, Periodic

from fsplaplace import Prior
from fsplaplace.prior._describe import describe

X = np.linspace(0, 4, 50)[:, None]
Y = np.sin(3 * X[:, 0])


def test_a_prior_that_fits_the_data_is_described_without_warnings():
    text = describe(Prior(RBF(lengthscale=0.5, variance=0.8)), X, Y)
    assert text.warnings == ()
    assert "about 0.5" in str(text)
    assert "infinitely smooth" in str(text)
    assert f"{np.sqrt(0.8):.3g}" in str(text)
    assert f"{np.std(Y):.3g}" in str(text)


CONTRADICTIONS = {
    "long": (RBF(lengthscale=50.0), Y, "times the data's range"),
    "short": (RBF(lengthscale=0.001), Y, "cannot tell functions from noise"),
    "small": (RBF(variance=1e-4), Y, "far below"),
    "large": (RBF(variance=1e4), Y, "far above"),
    "offset": (RBF(), Y + 100, "give the prior a mean"),
    "period": (Periodic(period=9.0), Y, "shows no repetition"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_each_contradiction_is_the_only_warning(case):
    kernel, y, message = CONTRADICTIONS[case]
    (warning,) = describe(Prior(kernel), X, y).warnings
    assert message in warning


@pytest.mark.parametrize(("kernel", "words"), [(Matern12(), "no derivative"), (Matern52(), "twice differentiable")])
def test_smoothness_is_in_words(kernel, words):
    assert words in str(describe(Prior(kernel)))


def test_components_and_outputs_are_told_apart():
    text = str(describe(Prior([RBF() + Matern12(), RBF()]), num_features=2))
    assert "output 0: component 2" in text
    assert "output 1: functions change" in text


def test_shapes_that_disagree_are_refused():
    with pytest.raises(ValueError, match="y has 10 rows"):
        describe(Prior(RBF()), X, Y[:10])
    with pytest.raises(ValueError, match="2 outputs"):
        describe(Prior(RBF()), X, np.stack([Y, Y], axis=1))
    with pytest.raises(ValueError, match="NaN"):
        describe(Prior(RBF()), X, np.full(50, np.nan))
