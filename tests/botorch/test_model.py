"""The surrogate against BoTorch's contract, against its exact Gaussian process, and under every acquisition function."""

import copy
import pickle
import warnings

import jax
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch import acquisition as acq  # noqa: E402
from botorch.acquisition import multi_objective as multi  # noqa: E402
from botorch.acquisition.active_learning import qNegIntegratedPosteriorVariance  # noqa: E402
from botorch.acquisition.joint_entropy_search import qJointEntropySearch  # noqa: E402
from botorch.acquisition.max_value_entropy_search import qLowerBoundMaxValueEntropy, qMaxValueEntropy  # noqa: E402
from botorch.acquisition.objective import GenericMCObjective  # noqa: E402
from botorch.acquisition.predictive_entropy_search import qPredictiveEntropySearch  # noqa: E402
from botorch.acquisition.utils import get_optimal_samples  # noqa: E402
from botorch.exceptions.errors import BotorchTensorDimensionError, InputDataError, UnsupportedError  # noqa: E402
from botorch.generation import MaxPosteriorSampling  # noqa: E402
from botorch.models import ModelList, SingleTaskGP  # noqa: E402
from botorch.models.transforms import Normalize  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402
from botorch.sampling import SobolQMCNormalSampler  # noqa: E402
from botorch.sampling.pathwise import draw_matheron_paths  # noqa: E402
from botorch.utils.datasets import SupervisedDataset  # noqa: E402
from botorch.utils.multi_objective.box_decompositions import FastNondominatedPartitioning  # noqa: E402
from gpjax.kernels import Matern52  # noqa: E402
from gpytorch.kernels import MaternKernel, ScaleKernel  # noqa: E402
from gpytorch.means import ZeroMean  # noqa: E402

import fsplaplace as fsp  # noqa: E402
from fsplaplace.botorch import FSPModel, _features, check_model  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(12, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.stack([torch.sin(5 * X[:, 0]) + X[:, 1], 3 * (X - 0.4).square().sum(dim=-1)], dim=-1)
TEST = torch.rand(9, 2, generator=GENERATOR, dtype=torch.float64)
SMALL = {"network": (40,), "num_context": 100}
LENGTHS, NOISE = [0.4, 0.6], 0.1


@pytest.fixture(scope="module", autouse=True)
def calm():
    """BoTorch warns of much that belongs to its own models."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def fixed():
    """A model and BoTorch's exact one with the same kernel and noise."""
    prior = fsp.Prior(Matern52(lengthscale=LENGTHS, variance=1.0))
    model = FSPModel(X, Y[:, :1], prior=prior, noise=NOISE, outcome_transform=None)
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))
    exact = SingleTaskGP(X, Y[:, :1], covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
    kernel.base_kernel.lengthscale, kernel.outputscale, exact.likelihood.noise = torch.tensor(LENGTHS), 1.0, NOISE**2
    return model, exact.eval()


@pytest.fixture(scope="module")
def two():
    return FSPModel(X, Y, **SMALL)


@pytest.fixture(scope="module")
def one(two):
    return two.subset_output([0])


@pytest.mark.slow
def test_it_keeps_the_contract(fixed, two):
    check_model(fixed[0], BOUNDS)
    check_model(two, BOUNDS)


def test_a_model_that_is_not_joint_does_not():
    class Marginal(SingleTaskGP):
        def posterior(self, X, **options):
            found = super().posterior(X, **options)
            found.distribution.__dict__.pop("_linear_op_cholesky", None)
            covariance = torch.diag_embed(found.distribution.variance)
            found.distribution = type(found.distribution)(found.distribution.mean, covariance)
            return found

    with pytest.raises(AssertionError, match="points of a batch are not joint"):
        check_model(Marginal(X, Y[:, :1]), BOUNDS)


def test_moments_are_those_of_the_exact_process(fixed):
    model, exact = fixed
    ours, theirs = model.posterior(TEST), exact.posterior(TEST)
    assert torch.allclose(ours.mean, theirs.mean, atol=0.01)
    assert torch.allclose(ours.distribution.covariance_matrix, theirs.distribution.covariance_matrix, atol=0.01)
    noisy = model.posterior(TEST, observation_noise=True).variance - ours.variance
    assert torch.allclose(noisy, torch.full_like(noisy, NOISE**2), atol=1e-9)
    given = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)[:, None]
    assert torch.allclose(model.posterior(TEST, observation_noise=given).variance - ours.variance, given, atol=1e-9)


def test_gradients_are_right(fixed):
    model = fixed[0]
    points = TEST[:3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model.posterior(x).mean, points, atol=1e-5)
    assert torch.autograd.gradcheck(lambda x: model.posterior(x).distribution.covariance_matrix, points, atol=1e-5)


def test_expected_improvement_is_the_exact_process_s(fixed):
    model, exact = fixed
    ours, theirs = (acq.LogExpectedImprovement(each, best_f=0.8)(TEST[:, None]).exp() for each in (model, exact))
    assert torch.allclose(ours, theirs, rtol=0.01, atol=0.01 * float(theirs.max()))


def test_the_knowledge_gradient_is_the_exact_process_s(fixed):
    values = []
    for model in fixed:
        sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
        gradient = acq.qKnowledgeGradient(model, num_fantasies=8, sampler=sampler)
        values.append(gradient(torch.stack([TEST, TEST.flip(0)])))
    assert torch.allclose(values[0], values[1], rtol=0.01)


def test_conditioning_is_that_of_the_posterior(fixed):
    model = fixed[0]
    targets = torch.sin(5 * TEST[:4, :1])
    later = model.condition_on_observations(TEST[:2], targets[:2]).condition_on_observations(TEST[2:4], targets[2:])
    with jax.enable_x64(True):
        wanted = model.fitted.condition(TEST[:4].numpy(), targets.numpy()).predict(TEST[4:].numpy())
    found = later.posterior(TEST[4:])
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-8)
    np.testing.assert_allclose(found.variance, wanted.variance, atol=1e-8)
    assert later.train_inputs[0].shape == (16, 2)
    assert model.train_inputs[0].shape == (12, 2)


PENDING = TEST[:2]
SAMPLER = SobolQMCNormalSampler(torch.Size([8]), seed=0)
REFERENCE = torch.tensor([-1.0, -1.0], dtype=torch.float64)


def optimal(model):
    torch.manual_seed(0)
    return get_optimal_samples(model, BOUNDS, num_optima=4, raw_samples=16, num_restarts=2)


# One output: what is optimised with gradients, and how many points at once.
SINGLE = {
    "LogEI": (1, lambda m: acq.LogExpectedImprovement(m, 0.5)),
    "UCB": (1, lambda m: acq.UpperConfidenceBound(m, 0.2)),
    "qLogEI": (2, lambda m: acq.qLogExpectedImprovement(m, 0.5, sampler=SAMPLER)),
    "qLogEI pending": (1, lambda m: acq.qLogExpectedImprovement(m, 0.5, sampler=SAMPLER, X_pending=PENDING)),
    "qLogNEI": (2, lambda m: acq.qLogNoisyExpectedImprovement(m, X, sampler=SAMPLER, cache_root=False)),
    "qLogNEI pending": (
        1, lambda m: acq.qLogNoisyExpectedImprovement(m, X, sampler=SAMPLER, cache_root=False, X_pending=PENDING)
    ),
    "qUCB": (2, lambda m: acq.qUpperConfidenceBound(m, 0.2, sampler=SAMPLER)),
    "qMES": (1, lambda m: qMaxValueEntropy(m, TEST, num_mv_samples=4, num_y_samples=8)),
    "qMES pending": (1, lambda m: qMaxValueEntropy(m, TEST, num_mv_samples=4, num_y_samples=8, X_pending=PENDING)),
    "GIBBON": (1, lambda m: qLowerBoundMaxValueEntropy(m, TEST, num_mv_samples=4, X_pending=PENDING)),
    "constrained qLogNEI": (
        1, lambda m: acq.qLogNoisyExpectedImprovement(
            constrained(m), X, cache_root=False, objective=GenericMCObjective(lambda Z, X=None: Z[..., 0]),
            constraints=[lambda Z: Z[..., 1] - 1.0],
        )
    ),
    "qJES": (1, lambda m: qJointEntropySearch(m, *optimal(m))),
    "qKG": (1, lambda m: acq.qKnowledgeGradient(m, num_fantasies=4)),
    "qNIPV": (1, lambda m: qNegIntegratedPosteriorVariance(m, TEST, sampler=SobolQMCNormalSampler(torch.Size([1])))),
}  # fmt: skip
SEVERAL = {
    "qLogEHVI": lambda m: multi.qLogExpectedHypervolumeImprovement(m, REFERENCE, partitioning(), sampler=SAMPLER),
    "qLogNEHVI": lambda m: multi.qLogNoisyExpectedHypervolumeImprovement(
        m, REFERENCE, X, sampler=SAMPLER, cache_root=False
    ),
}


def constrained(model):
    return ModelList(model, SingleTaskGP(X, Y[:, 1:]))


def partitioning():
    return FastNondominatedPartitioning(REFERENCE, Y)


def maximise(function, q):
    torch.manual_seed(0)
    start = torch.rand(2, q, 2, dtype=torch.float64)
    if isinstance(function, acq.qKnowledgeGradient):
        start = torch.rand(2, q + function.num_fantasies, 2, dtype=torch.float64)
    found, value = optimize_acqf(
        function, BOUNDS, q=q, num_restarts=2, raw_samples=None, batch_initial_conditions=start, options={"maxiter": 3}
    )
    assert found.shape == (q, 2)
    assert value > function(start).max()
    return found


@pytest.mark.parametrize("name", SINGLE)
def test_acquisition_functions_of_one_output_are_optimised(one, name):
    q, make = SINGLE[name]
    maximise(make(one), q)


def test_predictive_entropy_search_is_the_exact_process_s(fixed):
    """Not optimised: far from the optima its own slope is NaN, for BoTorch's model as for ours."""
    optima, values, slopes = optimal(fixed[1])[0], [], []
    start = torch.rand(4, 1, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for model in fixed:
        points = start.clone().requires_grad_()
        value = qPredictiveEntropySearch(model, optima)(points)
        values.append(value.detach())
        slopes.append(torch.autograd.grad(value.sum(), points)[0])
    assert torch.allclose(values[0], values[1], atol=0.01 * float(values[1].abs().max()))
    finite = torch.isfinite(slopes[1])
    assert finite.any()
    assert torch.allclose(slopes[0][finite], slopes[1][finite], atol=0.05 * float(slopes[1][finite].abs().max()))


@pytest.mark.parametrize("name", SEVERAL)
def test_acquisition_functions_of_several_outputs_are_optimised(two, name):
    maximise(SEVERAL[name](two), 2)


def test_candidates_and_functions_are_drawn(one):
    assert MaxPosteriorSampling(one, replacement=False)(TEST, num_samples=2).shape == (2, 2)
    torch.manual_seed(0)
    paths = draw_matheron_paths(one, sample_shape=torch.Size([4000]))
    draws, found = paths(TEST), one.posterior(TEST)
    assert draws.shape == (4000, 9)
    deviation = found.variance.sqrt().squeeze(-1)
    assert ((draws.mean(dim=0) - found.mean.squeeze(-1)).abs() < 5 * deviation / 4000**0.5 + 1e-6).all()
    assert torch.allclose(draws.std(dim=0), deviation, rtol=0.1, atol=1e-6)
    point = TEST[:1].clone().requires_grad_()
    assert torch.autograd.grad(draw_matheron_paths(one, sample_shape=torch.Size([1]))(point).sum(), point)[0].shape == (
        1,
        2,
    )


def test_known_noise_of_each_row_is_used():
    variance = torch.full_like(Y[:, :1], 1e-4)
    variance[3] = 100.0
    prior = fsp.Prior(Matern52(lengthscale=LENGTHS))
    model = FSPModel(X, Y[:, :1], variance, prior=prior, outcome_transform=None, **SMALL)
    off = (model.posterior(X).mean - Y[:, :1]).abs().squeeze(-1)
    assert off[torch.arange(12) != 3].max() < 0.02
    assert model.likelihood.noise.shape == (12,)
    assert model.fantasize(TEST[:2], SAMPLER).batch_shape == (8,)


def test_transforms_change_units_only():
    prior = fsp.Prior(Matern52(lengthscale=LENGTHS))
    options = {"prior": prior, "noise": NOISE, "outcome_transform": None, **SMALL}
    plain = FSPModel(X, Y[:, :1], **options)
    bounds = torch.tensor([[-5.0, 10.0], [5.0, 30.0]], dtype=torch.float64)
    scale = lambda x: bounds[0] + x * (bounds[1] - bounds[0])  # noqa: E731
    model = FSPModel(scale(X), Y[:, :1], input_transform=Normalize(2, bounds=bounds), **options)
    assert torch.allclose(model.posterior(scale(TEST)).mean, plain.posterior(TEST).mean, atol=1e-6)
    later, plain_later = (
        m.condition_on_observations(x, TEST[:2, :1]) for m, x in ((model, scale(TEST[:2])), (plain, TEST[:2]))
    )
    assert torch.allclose(later.posterior(scale(TEST)).variance, plain_later.posterior(TEST).variance, atol=1e-6)


def test_state_and_copies_predict_the_same(one, two, fixed):
    dataset = SupervisedDataset(X, Y, feature_names=["a", "b"], outcome_names=["u", "v"])
    inputs = FSPModel.construct_inputs(dataset)
    other = FSPModel(**inputs, **{**SMALL, "seed": 3})
    assert not torch.allclose(other.posterior(TEST).mean, two.posterior(TEST).mean, atol=1e-9)
    other.load_state_dict(two.state_dict())
    assert torch.allclose(other.posterior(TEST).mean, two.posterior(TEST).mean, atol=1e-6)
    assert torch.equal(copy.deepcopy(one).posterior(TEST).variance, one.posterior(TEST).variance)
    assert torch.equal(pickle.loads(pickle.dumps(one)).posterior(TEST).variance, one.posterior(TEST).variance)


def test_the_next_data_set_of_similar_size_is_predicted_by_the_same_programs():
    """Values and slopes; `laplace` and `fit_prior` still compile a few programs for a new number of rows."""
    prior = fsp.Prior(Matern52(lengthscale=LENGTHS))

    def iterate(n):
        points = torch.rand(n, 2, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
        model = FSPModel(points, torch.sin(5 * points[:, :1]), prior=prior, noise=NOISE, **SMALL)
        maximise(acq.qLogExpectedImprovement(model, 0.5, sampler=SAMPLER), 2)
        programs = (_features._local, _features._with_slopes, _features._pulled)
        return [program._cache_size() for program in programs]

    assert iterate(9) == iterate(10) == iterate(12)


@pytest.mark.parametrize("n", [1, 2])
def test_few_points_are_enough(n):
    model = FSPModel(X[:n], Y[:n, :1], **SMALL)
    assert torch.isfinite(model.posterior(TEST).variance).all()


def test_single_precision_and_repeated_points():
    model = FSPModel(X.float(), Y[:, :1].float(), **SMALL)
    again = TEST[:2].float().repeat(3, 1)
    found = model.posterior(again, observation_noise=True)
    assert found.mean.dtype == torch.float32
    assert torch.isfinite(found.rsample(torch.Size([2]))).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: FSPModel(X, Y[:, 0]), BotorchTensorDimensionError, "explicit output dimension"),
        (lambda: FSPModel(X, Y.float()), InputDataError, "share the same dtype"),
        (lambda: FSPModel(X.half(), Y.half()), InputDataError, r"pass train_X.to\(torch.float64\)"),
        (lambda: FSPModel(X, Y.long()), InputDataError, r"pass train_Y.to\(torch.float64\)"),
        (lambda: FSPModel(X.to("meta"), Y.to("meta")), InputDataError, r"train_X is on meta; move it to the CPU"),
        (lambda: FSPModel(X, 1e200 * Y), InputDataError, "divide it by a typical size"),
        (lambda: FSPModel(X, 1e-150 * Y), InputDataError, "divide it by a typical size"),
        (lambda: FSPModel(X.float(), 1e30 * Y.float()), InputDataError, "divide it by a typical size"),
        (lambda: FSPModel(X, Y, prior=fsp.Prior(Matern52())), BotorchTensorDimensionError, "prior has 1 outputs"),
        (lambda: FSPModel(X, Y, outcome_transform="normalise"), ValueError, "outcome_transform is 'normalise'"),
        (lambda: FSPModel(X, Y * torch.nan), InputDataError, "train_Y has NaN or infinite values"),
        (lambda: FSPModel(X[None], Y[None]), UnsupportedError, "pass one data set"),
        (lambda: FSPModel(X[:0], Y[:0]), InputDataError, "train_X has no rows"),
        (lambda: FSPModel(X, Y, torch.zeros_like(Y)), InputDataError, "train_Yvar must be positive"),
        (lambda: FSPModel(X, Y, bounds=BOUNDS[:, :1]), BotorchTensorDimensionError, r"pass \(2, 2\)"),
        (lambda: FSPModel(X, Y, bounds=BOUNDS.flip(0)), InputDataError, "lower bounds below the upper"),
        (lambda: FSPModel(X, Y, bounds=BOUNDS * torch.nan), InputDataError, "bounds has NaN"),
    ],
)
def test_impossible_data_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda model: model.posterior(TEST.float()), InputDataError, r"pass X.to\(train_X\)"),
        (lambda model: model.posterior(TEST.to("meta")), InputDataError, r"pass X.to\(train_X\)"),
        (
            lambda model: model.posterior(TEST, observation_noise=torch.ones(7, 1)),
            BotorchTensorDimensionError,
            r"pass \(..., 9, 1\)",
        ),
        (
            lambda model: model.condition_on_observations(TEST[:2], Y[:2, :1], noise=-torch.ones(2, 1)),
            InputDataError,
            "variances of the noise are negative",
        ),
        (lambda model: model.condition_on_observations(TEST[:2] / 0, Y[:2, :1]), InputDataError, "X has NaN"),
        (lambda model: acq.NoisyExpectedImprovement(model, X), UnsupportedError, "with known observation noise"),
        (
            lambda model: acq.LogExpectedImprovement(FSPModel(X, Y, **SMALL), 0.5),
            UnsupportedError,
            "posterior transform",
        ),
        (lambda model: model.posterior(TEST[:, :1]), BotorchTensorDimensionError, "X has 1 columns"),
        (lambda model: model.posterior(TEST[0]), BotorchTensorDimensionError, r"pass \(..., q, d\)"),
        (lambda model: model.posterior(TEST[:1].expand(10**9, 1, 2)), ValueError, "a quarter of this machine's memory"),
        (
            lambda model: model.condition_on_observations(TEST[:2], Y[:3, :1]),
            BotorchTensorDimensionError,
            r"pass Y of shape \(..., 2, 1\)",
        ),
        (lambda model: model.condition_on_observations(TEST[:2], Y[:2, :1] * torch.nan), InputDataError, "Y has NaN"),
    ],
)
def test_questions_that_have_no_answer_are_refused_by_name(one, call, error, message):
    with pytest.raises(error, match=message):
        call(one)


def test_the_second_iteration_of_a_loop_compiles_nothing(compilations):
    """Up to 16 rows are padded to 16: prior, network, approximation, acquisition and its gradient."""
    points = torch.rand(16, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values = torch.sin(5 * points[:, :1])
    model, compiled = FSPModel(points[:4], values[:4], **SMALL), []
    for number in (4, 5, 9, 12, 16):
        if number > 4:
            compilations.clear()
            model = model.updated(points[:number], values[:number])
        improvement = acq.qLogExpectedImprovement(model, values[:number].max())
        optimize_acqf(improvement, BOUNDS, q=2, num_restarts=2, raw_samples=8, options={"maxiter": 3})
        compiled.append(len(compilations))
    assert compiled[1:] == [0] * 4
