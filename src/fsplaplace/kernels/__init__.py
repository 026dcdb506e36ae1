"""Fast covariance matrices for GPJax kernels, and the kernels that this library adds to them."""

from .engine import GemmComputation as GemmComputation
from .engine import covariance as covariance
from .engine import variance as variance
from .helmholtz import Helmholtz as Helmholtz
from .lengthscales import lengthscales as lengthscales
from .lengthscales import smoothness as smoothness
from .multi_output import BlockKernel as BlockKernel
from .multi_output import block_covariance as block_covariance
from .multi_output import block_variance as block_variance
from .multi_output import num_outputs as num_outputs
