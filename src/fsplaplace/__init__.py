"""Neural networks with Gaussian-process priors over functions (FSP-Laplace)."""

from fsplaplace._version import __version__ as __version__
