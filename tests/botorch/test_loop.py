"""What a loop of Bayesian optimisation needs of the surrogate: the exact process where decisions are made, and quick updates."""

import itertools
import math
import warnings

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch import acquisition as acq  # noqa: E402
from botorch.exceptions.errors import InputDataError, UnsupportedError  # noqa: E402
from botorch.exceptions.warnings import InputDataWarning  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402
from botorch.sampling import SobolQMCNormalSampler  # noqa: E402
from botorch.test_functions import Hartmann  # noqa: E402
from gpjax.kernels import Matern52  # noqa: E402
from gpytorch.kernels import MaternKernel, ScaleKernel  # noqa: E402
from gpytorch.means import ZeroMean  # noqa: E402

import fsplaplace as fsp  # noqa: E402
from fsplaplace.botorch import FSPModel  # noqa: E402
from fsplaplace.botorch._conditioning import nothing_observed, observe  # noqa: E402
from fsplaplace.botorch._features import Process  # noqa: E402
from fsplaplace.networks import push_forward  # noqa: E402
from fsplaplace.tuning import log_marginal_likelihood  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(16, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.sin(5 * X[:, :1]) + X[:, 1:]
TEST = torch.rand(9, 2, generator=GENERATOR, dtype=torch.float64)
SMALL = {"network": (40,), "num_context": 100}


@pytest.fixture(scope="module", autouse=True)
def calm():
    """BoTorch warns of much that belongs to its own models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Length scales, variance and noise that BoTorch's gamma priors lead to on this data (fitted once; the comparison is of two
# posteriors under one prior, whatever that is).
HARTMANN = {"lengthscale": [0.46, 0.33, 0.89, 0.25, 0.65, 0.28], "variance": 0.89, "noise": 0.08}


@pytest.fixture(scope="module")
def hartmann():
    """40 values of Hartmann-6: our model, BoTorch's exact one with the same prior, and where candidates are.

    Twice the units and context points of the defaults: six inputs need them, as `benchmarks/bo.py` shows beside the defaults.
    """
    inputs = torch.quasirandom.SobolEngine(6, scramble=True, seed=0).draw(40, dtype=torch.float64)
    values = Hartmann(6, negate=True, dtype=torch.float64)(inputs)[:, None]
    values = (values - values.mean()) / values.std()
    prior = fsp.Prior(Matern52(lengthscale=HARTMANN["lengthscale"], variance=HARTMANN["variance"]))
    model = FSPModel(
        inputs, values, prior=prior, noise=HARTMANN["noise"], outcome_transform=None, network=(800,), num_context=800
    )
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=6))
    exact = SingleTaskGP(inputs, values, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
    kernel.base_kernel.lengthscale, kernel.outputscale = torch.tensor(HARTMANN["lengthscale"]), HARTMANN["variance"]
    exact.likelihood.noise = HARTMANN["noise"] ** 2
    corners = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=torch.float64)
    places = {
        "corners": corners,
        **{name: candidates(each, values) for name, each in (("ours", model), ("exact", exact))},
    }
    return model, exact.eval(), places


def candidates(model, values):
    sampler = SobolQMCNormalSampler(torch.Size([128]), seed=0)
    improvement = acq.qLogExpectedImprovement(model, values.max(), sampler=sampler)
    box = torch.stack([torch.zeros(6), torch.ones(6)]).double()
    options = {"maxiter": 10, "seed": 0}
    torch.manual_seed(0)
    return optimize_acqf(improvement, box, q=10, num_restarts=2, raw_samples=16, options=options)[0]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["corners", "ours", "exact"])
def test_moments_are_the_exact_process_s_where_decisions_are_made(hartmann, place):
    """In standard deviations of the prior; "ours" and "exact" are the candidates of either model."""
    model, exact, places = hartmann
    with torch.no_grad():
        ours, theirs = model.posterior(places[place]), exact.posterior(places[place])
    size = HARTMANN["variance"] ** 0.5
    root_mean_square = lambda difference: float(difference.square().mean().sqrt()) / size  # noqa: E731
    assert root_mean_square(ours.variance.sqrt() - theirs.variance.sqrt()) <= 0.05
    assert root_mean_square(ours.mean - theirs.mean) <= 0.1


@pytest.mark.parametrize("place", ["corners", "ours", "exact"])
def test_features_imply_the_stated_prior_variance_where_decisions_are_made(hartmann, place):
    """Before they are normalised: the sum of squares of J S, each direction divided by what the data left of it."""
    model, _, places = hartmann
    fitted = model.fitted
    with jax.enable_x64(True):
        features = np.asarray(
            push_forward(fitted.model, jax.numpy.asarray(places[place].numpy()), fitted.scale, budget=1e9)
        )
    implied = np.sum(features[:, 0] ** 2 * np.asarray(fitted.information), axis=1)
    assert np.all((implied > 0.8 * HARTMANN["variance"]) & (implied < 1.25 * HARTMANN["variance"]))


def test_ten_points_in_ten_dimensions_are_predicted_no_worse_than_by_a_constant():
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(10, 20, generator=generator, dtype=torch.float64)
    function = lambda x: torch.tanh(x @ weight).sum(dim=-1, keepdim=True)  # noqa: E731
    inputs, new = (torch.rand(count, 10, generator=generator, dtype=torch.float64) for count in (10, 200))
    values, wanted = function(inputs), function(new)
    found = FSPModel(inputs, values, network=(100,), num_context=200).posterior(new, observation_noise=True)

    def density(mean, variance):
        return float((-0.5 * torch.log(2 * math.pi * variance) - 0.5 * (wanted - mean) ** 2 / variance).mean())

    assert density(found.mean, found.variance) >= density(values.mean(), values.var()) - 0.5


def test_repeated_points_do_not_break_a_cholesky_factor():
    inputs, values = X[:4].repeat(4, 1), Y[:4].repeat(4, 1)
    model = FSPModel(inputs, values, **SMALL)
    again = torch.cat([inputs[:3], inputs[:3], TEST[:1], TEST[:1]])
    improvement = acq.qLogExpectedImprovement(model, values.max(), sampler=SobolQMCNormalSampler(torch.Size([16])))
    assert torch.isfinite(improvement(again))
    assert torch.isfinite(model.condition_on_observations(again, torch.zeros(8, 1)).posterior(again).variance).all()


def test_a_value_seen_twice_without_noise_says_what_it_says_once():
    """The covariance of the two is singular."""
    features = torch.randn(3, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets, none = torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64)
    before, once = nothing_observed(8, like=targets), Process(none, features, none)
    twice = Process(*(part.repeat(2, *[1] * (part.dim() - 1)) for part in once))
    found, wanted = observe(before, twice, targets.repeat(2, 1), none[:1]), observe(before, once, targets, none)
    assert torch.allclose(found.step, wanted.step, atol=1e-6)
    assert torch.allclose(found.told.mT @ found.told, wanted.told.mT @ wanted.told, atol=1e-6)


def test_measurements_of_one_place_are_data(model):
    """Nothing says how the function varies: the kernel stays as it is, the mean there is that of the measurements, the rest noise."""
    first = FSPModel(X[:1].repeat(5, 1), Y[:5], **SMALL)
    there = first.posterior(X[:1]).mean
    assert torch.allclose(there, Y[:5].mean(dim=0, keepdim=True), atol=0.01 * float(Y[:5].std()))
    noise = (first.posterior(X[:1], observation_noise=True).variance - first.posterior(X[:1]).variance).sqrt()
    assert torch.allclose(noise, Y[:5].std(correction=0).reshape(1, 1))
    assert first.updated(torch.cat([X[:1].repeat(5, 1), X]), torch.cat([Y[:5], Y])).fitted.prior.num_outputs == 1


def test_data_elsewhere_than_in_the_unit_cube_are_the_same_data_moved():
    """As the bounds that say where they are; `X` ranges over nearly all of the cube."""
    prior = fsp.Prior(Matern52(lengthscale=[0.4, 0.6]))
    options = {"prior": prior, "noise": 0.1, **SMALL}
    far = torch.tensor([1000.0, -300.0], dtype=torch.float64)
    box = torch.stack([X.amin(dim=0), X.amax(dim=0)])
    with pytest.warns(InputDataWarning, match="not contained to the unit cube"):
        moved = FSPModel(X + far, Y, **options)
    found, wanted = moved.posterior(TEST + far), FSPModel(X, Y, bounds=box, **options).posterior(TEST)
    assert torch.allclose(found.mean, wanted.mean, atol=1e-3)
    assert torch.allclose(found.variance, wanted.variance, atol=1e-3)


def test_targets_that_nobody_standardised_are_warned_of_as_botorch_does():
    with pytest.warns(InputDataWarning, match="not standardized"):
        FSPModel(X, Y + 10, outcome_transform=None, **SMALL)


@pytest.fixture(scope="module")
def model():
    return FSPModel(X[:12], Y[:12], **SMALL)


def test_a_warm_start_finds_a_prior_as_good_as_a_cold_one(model):
    cold, warm = FSPModel(X, Y, **SMALL), model.updated(X, Y)
    evidence = []
    for each in (cold, warm):
        prior, noise = each.fitted.prior, each.fitted.likelihood.scale
        with jax.enable_x64(True):
            rows, targets = jax.numpy.asarray(X.numpy()), jax.numpy.asarray(each.train_targets[:, None].numpy())
            evidence.append(float(log_marginal_likelihood(prior, noise**2, rows, targets)))
    assert evidence[1] >= evidence[0] - 0.1
    assert warm.train_inputs[0].shape == (16, 2)
    assert torch.allclose(warm.posterior(TEST).mean, cold.posterior(TEST).mean, atol=0.05)


@pytest.mark.slow
def test_training_goes_on_from_the_last_weights(model):
    """With one step of a tiny size the weights are those of the last model, not a new draw."""
    first = FSPModel(X[:12], Y[:12], **SMALL, steps=1)
    second = FSPModel(X, Y, **{**SMALL, "seed": 5}, steps=1, last=first)
    new = FSPModel(X, Y, **{**SMALL, "seed": 5}, steps=1)
    distance = [
        np.abs(np.asarray(each.fitted.model.weights - first.fitted.model.weights)).max() for each in (second, new)
    ]
    assert distance[0] < 0.05 < distance[1]


def test_new_rows_that_surprise_nobody_are_conditioned_on(model):
    """As predicted, one standard deviation away in both directions: chi-squared is the number of rows."""
    found = model.posterior(X[12:14], observation_noise=True)
    lower = torch.linalg.cholesky(found.distribution.covariance_matrix)
    usual = found.mean + lower @ torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    later = model.updated(X[:14], torch.cat([Y[:12], usual]), refit="condition")
    assert later.fitted is model.fitted
    wanted = model.condition_on_observations(X[12:14], usual).posterior(TEST)
    assert torch.equal(later.posterior(TEST).mean, wanted.mean)
    assert later.train_targets.shape == (14,)
    surprising = found.mean + 4 * lower @ torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    assert model.updated(X[:14], torch.cat([Y[:12], surprising]), refit="condition").fitted is not model.fitted


def test_half_as_many_rows_again_call_for_a_new_fit(model):
    more = torch.cat([X, TEST[:2]])
    exact = torch.cat([Y, torch.sin(5 * TEST[:2, :1]) + TEST[:2, 1:]])
    assert model.updated(more, exact, refit="condition").fitted is not model.fitted


def test_what_cannot_be_updated_is_refused(model):
    with pytest.raises(InputDataError, match="first 12 rows of train_X are not those of this model"):
        model.updated(X.flip(0), Y.flip(0))
    fantasies = model.fantasize(TEST[:1], SobolQMCNormalSampler(torch.Size([2])))
    with pytest.raises(UnsupportedError, match="a model of fantasies"):
        fantasies.updated(X, Y)


def test_a_loaded_state_is_the_hyperparameters_and_not_the_data(model):
    """As with BoTorch's Gaussian processes: cross-validation loads the state of all data into models of some of them."""
    fewer = FSPModel(X[:8], Y[:8], **SMALL)
    own_scale = fewer.outcome_transform.stdvs.clone()
    fewer.load_state_dict(model.state_dict())
    assert fewer.fitted_elsewhere
    assert torch.equal(fewer.outcome_transform.stdvs, own_scale)
    noise = [float(np.asarray(each.fitted.likelihood.scale)[0]) for each in (fewer, model)]
    assert noise[0] == pytest.approx(noise[1])
    wanted = FSPModel(X[:8], Y[:8], **SMALL, prior=model.fitted.prior, noise=noise[1])
    assert torch.allclose(fewer.posterior(TEST).mean, wanted.posterior(TEST).mean, atol=0.02)
    fewer.refit()
    assert not fewer.fitted_elsewhere
    assert float(np.asarray(fewer.fitted.likelihood.scale)[0]) != noise[1]


def test_an_output_that_never_varies_does_not_stop_the_others():
    """A constraint that no row violates so far, beside an objective."""
    both = torch.cat([Y[:12], torch.full((12, 1), 3.0)], dim=-1)
    found, alone = FSPModel(X[:12], both, **SMALL).posterior(TEST), FSPModel(X[:12], Y[:12], **SMALL).posterior(TEST)
    assert torch.allclose(found.mean[:, :1], alone.mean, atol=0.05)
    assert torch.allclose(found.mean[:, 1], torch.full((9,), 3.0, dtype=torch.float64), atol=1e-3)
