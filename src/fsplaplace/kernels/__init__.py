"""Fast covariance matrices for GPJax kernels, what is known about each kind, and the kernels that this library adds."""

from ._columns import check_columns as check_columns
from ._entry import DataSummary as DataSummary
from ._entry import KernelEntry as KernelEntry
from ._entry import Remarks as Remarks
from ._entry import Start as Start
from ._gpjax import radial_entry as radial_entry
from ._pairs import Pairs as Pairs
from ._registry import nearest_entry as nearest_entry
from ._registry import parameter_starts as parameter_starts
from ._registry import register_kernel as register_kernel
from .convolutional_features import RandomConvolutions as RandomConvolutions
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
from .on_features import OnFeatures as OnFeatures
from .on_features import has_features as has_features
from .on_features import linear_features as linear_features
from .on_features import on_columns as on_columns
from .on_features import with_bases_of as with_bases_of
