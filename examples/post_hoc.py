# %% [markdown]
# # After the fact: a network that is already trained
#
# Training under the prior is best, but not needed. `laplace` takes any trained network and gives it the prior's posterior; the
# diagnostics say whether the network's features can hold it.

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from gpjax.kernels import RBF

import fsplaplace as fsp

generator = np.random.default_rng(0)
X = generator.uniform(-1, 1, (100, 1)).astype(np.float32)
y = np.sin(4 * X[:, 0]) + 0.1 * generator.normal(size=100).astype(np.float32)

# %% [markdown]
# Somebody's network, trained with plain least squares:

# %%
network = eqx.nn.MLP(1, 1, 50, 2, activation=jnp.tanh, key=jr.key(0))
optimizer = optax.adam(1e-2)
state = optimizer.init(eqx.filter(network, eqx.is_array))


@eqx.filter_jit
def step(network, state):
    loss = lambda net: jnp.mean((jax.vmap(net)(X)[:, 0] - y) ** 2)  # noqa: E731
    gradient = eqx.filter_grad(loss)(network)
    updates, state = optimizer.update(gradient, state)
    return eqx.apply_updates(network, updates), state


for _ in range(500):
    network, state = step(network, state)

# %% [markdown]
# The prior and the noise are fitted to the same data; no step of training follows.

# %%
fitted = fsp.fit_prior(fsp.Prior(RBF()), X, y, key=jr.key(1))
posterior = fsp.laplace(
    fsp.as_model(network), fitted.prior, fitted.likelihood, X, y,
    context_points=np.linspace(-2, 2, 200)[:, None],
)  # fmt: skip
print(posterior)

# %% [markdown]
# "implied / stated" compares the prior that the network's features can express with the one you asked for: near 1 is good. The
# mean is the network's own or, where it is better, the refined one of the linearised model.

# %%
inside, outside = posterior.predict(np.array([[0.0]])), posterior.predict(np.array([[1.8]]))
print(f"at the data {float(inside.std[0, 0]):.3f}, far away {float(outside.std[0, 0]):.3f}")
assert float(outside.std[0, 0]) > 5 * float(inside.std[0, 0])

# %% [markdown]
# Noise and kernel can be tuned again, now by the evidence of this very posterior:

# %%
tuned = fsp.tune(posterior, X, y)
print(f"log evidence {float(posterior.log_evidence):.1f} before, {float(tuned.posterior.log_evidence):.1f} after")
