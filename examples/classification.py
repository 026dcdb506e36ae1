# %% [markdown]
# # Classification
#
# Labels work as targets do: a Gaussian-process prior over the logit, a network, a posterior. Far from the data the
# probability goes back to one half, which a network without a prior never says.

# %%
import jax.random as jr
import numpy as np
from gpjax.kernels import RBF
from sklearn.datasets import make_moons
from sklearn.model_selection import train_test_split

import fsplaplace as fsp

X, y = make_moons(200, noise=0.15, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %% [markdown]
# ## With scikit-learn's conventions

# %%
classifier = fsp.FSPClassifier(kernel="rbf", steps=500, random_state=0).fit(X_train, y_train)
print(f"accuracy {classifier.score(X_test, y_test):.3f}")

far = np.array([[6.0, 6.0]])
print(
    "near a moon:", classifier.predict_proba(X_test[:1]).round(3), "far away:", classifier.predict_proba(far).round(3)
)

# %% [markdown]
# ## Step by step
#
# `Bernoulli` has one logit; `Categorical(num_classes)` has one per class. The kernel's variance says how sure the
# function may be: a standard deviation of 3 for the logit reaches probabilities beyond 0.99.

# %%
prior = fsp.Prior(RBF(lengthscale=0.8, variance=9.0))
likelihood = fsp.likelihoods.Bernoulli()
context = fsp.context.Uniform([-3.0, -3.0], [4.0, 4.0])
network = fsp.mlp([50, 50], prior=prior, context=context, key=jr.key(0))
trained = fsp.train(
    fsp.as_model(network), prior, likelihood, context, X_train, y_train, key=jr.key(1), steps=500, progress=False
)
posterior = fsp.laplace(
    trained.model, prior, likelihood, X_train, y_train, context_points=context.sample(400, key=jr.key(2))
)

probability = np.asarray(posterior.predict_proba(X_test))[:, 0]
print(f"accuracy {np.mean((probability > 0.5) == y_test):.3f}")
print(f"probability at (-2.5, 3.5), far from both moons: {float(posterior.predict_proba([[-2.5, 3.5]])[0, 0]):.2f}")

assert np.mean((probability > 0.5) == y_test) > 0.9
assert abs(float(posterior.predict_proba([[-2.5, 3.5]])[0, 0]) - 0.5) < 0.2

# %% [markdown]
# Mean and standard deviation of the probability over the plane:

# %%
from fsplaplace import plotting

mean_axes, std_axes = plotting.plot_classification(posterior, X_train, y_train)
