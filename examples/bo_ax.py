# %% [markdown]
# # Ax runs the experiment, the network is its surrogate
#
# Ax keeps the book of trials and decides what is asked next; `register_with_ax` tells it how to fit a network with a
# Gaussian-process prior. Needs `fsplaplace[ax]`.

# %%
import warnings

from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.generation_strategy.generation_strategy import GenerationNode, GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MinTrials
from ax.generators.torch.botorch_modular.surrogate import ModelConfig, SurrogateSpec

from fsplaplace.botorch import FSPModel, register_with_ax

warnings.simplefilter("ignore")  # BoTorch's advice on scaling
register_with_ax()

# %% [markdown]
# Six Sobol points first, then the surrogate:

# %%
spec = SurrogateSpec(
    model_configs=[ModelConfig(botorch_model_class=FSPModel, model_options={"network": (100,), "num_context": 100})]
)
strategy = GenerationStrategy(
    name="Sobol, then FSP-Laplace",
    nodes=[
        GenerationNode(
            name="Sobol",
            generator_specs=[GeneratorSpec(Generators.SOBOL, generator_kwargs={"seed": 0})],
            transition_criteria=[MinTrials(threshold=6, transition_to="FSP-Laplace")],
        ),
        GenerationNode(
            name="FSP-Laplace",
            generator_specs=[GeneratorSpec(Generators.BOTORCH_MODULAR, generator_kwargs={"surrogate_spec": spec})],
        ),
    ],
)

# %% [markdown]
# An experiment with two parameters and a loss whose smallest value is at a = 1, b = -2:

# %%
client = Client(random_seed=0)
client.configure_experiment(
    parameters=[RangeParameterConfig(name=name, parameter_type="float", bounds=(-5.0, 5.0)) for name in ("a", "b")]
)
client.configure_optimization(objective="-loss")
client.set_generation_strategy(strategy)
for _ in range(12):
    for index, parameters in client.get_next_trials(max_trials=1).items():
        loss = (parameters["a"] - 1) ** 2 + (parameters["b"] + 2) ** 2
        client.complete_trial(trial_index=index, raw_data={"loss": loss})

best, found, *_ = client.get_best_parameterization(use_model_predictions=False)
print(f"loss {found['loss']} at {best}")
assert abs(best["a"] - 1) < 0.5
assert abs(best["b"] + 2) < 0.5
