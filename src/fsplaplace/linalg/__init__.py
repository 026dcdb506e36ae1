"""Matrix-free linear algebra: knows matrices and operators, never a network or a kernel."""

from fsplaplace.linalg._eigen import eigenpairs as eigenpairs
from fsplaplace.linalg._eigen import psd_factor as psd_factor
from fsplaplace.linalg._golub_kahan import block_golub_kahan as block_golub_kahan
from fsplaplace.linalg._lanczos import lanczos_inverse_factor as lanczos_inverse_factor
from fsplaplace.linalg._newton import damped_newton as damped_newton
from fsplaplace.linalg._normal_equations import NormalSolution as NormalSolution
from fsplaplace.linalg._normal_equations import normal_equations as normal_equations
from fsplaplace.linalg._orthonormal import Basis as Basis
from fsplaplace.linalg._orthonormal import orthonormal_rows as orthonormal_rows
from fsplaplace.linalg._pivoted_cholesky import pivoted_cholesky as pivoted_cholesky
from fsplaplace.linalg._ridge import Probe as Probe
from fsplaplace.linalg._ridge import Solution as Solution
from fsplaplace.linalg._ridge import minimum_norm_solve as minimum_norm_solve
from fsplaplace.linalg._ridge import ridge as ridge
