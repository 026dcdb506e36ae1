"""The Gaussian-process prior: kernel, mean and outputs, its moments on the host and its factor."""

from fsplaplace.prior import moments as moments
from fsplaplace.prior._describe import describe as describe
from fsplaplace.prior._factor import FactorPlan as FactorPlan
from fsplaplace.prior._factor import PriorFactor as PriorFactor
from fsplaplace.prior._factor import checked_factor as checked_factor
from fsplaplace.prior._factor import plan_factor as plan_factor
from fsplaplace.prior._prior import Prior as Prior
from fsplaplace.prior._structure import BlockStructure as BlockStructure
from fsplaplace.prior._through import SeenPrior as SeenPrior
