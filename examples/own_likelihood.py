# %% [markdown]
# # Your own likelihood
#
# A likelihood is one method: the log-density of one target given the network's output. Curvature, checks and the Laplace
# approximation follow by automatic differentiation. Here: Student's t, which forgives outliers.

# %%
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF
from jax.scipy.stats import t as student

import fsplaplace as fsp


class StudentT(fsp.likelihoods.Likelihood):
    """Heavy tails: three degrees of freedom."""

    scale: float

    def log_density(self, output, target):
        return student.logpdf(target, df=3.0, loc=output[0], scale=self.scale)


# %% [markdown]
# Data with outliers:

# %%
generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (80, 1))
truth = np.sin(3 * X[:, 0])
y = truth + 0.1 * generator.normal(size=80)
y[::10] += generator.choice([-2.0, 2.0], 8)

prior = fsp.Prior(RBF(lengthscale=0.6))
context = fsp.context.Uniform(-1.5, 1.5)
context_points = context.sample(100, key=jr.key(0))
network = fsp.mlp([50], prior=prior, context=context, key=jr.key(1))

# %% [markdown]
# The same prior and network under both likelihoods. Nothing else changes.

# %%
errors = {}
for likelihood in (fsp.likelihoods.Gaussian(scale=0.1), StudentT(scale=0.1)):
    trained = fsp.train(
        fsp.as_model(network), prior, likelihood, context, X, y, key=jr.key(2), steps=500, progress=False
    )
    posterior = fsp.laplace(trained.model, prior, likelihood, X, y, context_points=context_points)
    name = type(likelihood).__name__
    errors[name] = float(jnp.sqrt(jnp.mean((posterior.predict(X).mean[:, 0] - truth) ** 2)))
    print(f"{name}: RMSE to the truth {errors[name]:.3f}")

assert errors["StudentT"] < 0.7 * errors["Gaussian"]

# %% [markdown]
# Where the density is not log-concave, as in these tails, the curvature keeps its positive part: such points add no
# information, and the posterior covariance exists.

# %%
likelihood = StudentT(scale=0.1)
near, far = jnp.array([[0.0], [0.0]]), jnp.array([0.05, 2.0])
print("curvature near the target and far from it:", likelihood.curvature(near, far).ravel())
