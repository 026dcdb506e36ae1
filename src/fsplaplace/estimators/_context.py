"""Where an estimator enforces its prior: around the training inputs."""

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from fsplaplace.context import Data, Mixture, Sampler, around
from fsplaplace.host import host_generator, padded_size, to_device

# Training inputs near which context points are drawn; a step shuffles them all.
MOST_CONTEXT_ROWS = 1024


def context_around(X: Float[np.ndarray, "n d"], key: PRNGKeyArray) -> Mixture:
    """`around(X)` with a round number of training inputs in it, so that data sets of similar size share programs."""
    box, data = around(X).samplers
    assert isinstance(data, Data)
    generator = host_generator(key)
    chosen = generator.permutation(len(X))[:MOST_CONTEXT_ROWS]
    return Mixture([box, Data(np.resize(X[chosen], (padded_size(len(chosen)), X.shape[1])), jitter=data.jitter)])


class OnHost(Sampler):
    """A sampler whose points are drawn on the host.

    What is drawn once, to make a network, is not worth the programs that draw it; what every step of the training draws is: the host
    takes longer to draw it than the step takes.

    Args:
        sampler: of these points.
    """

    sampler: Sampler

    @property
    def compiled(self):
        return False

    def sample(self, num_points, *, key):
        return to_device(self.draw(num_points, host_generator(key)))

    def draw(self, num_points, generator):
        return self.sampler.draw(num_points, generator)

    def minus(self, origin):
        return OnHost(self.sampler.minus(origin))
