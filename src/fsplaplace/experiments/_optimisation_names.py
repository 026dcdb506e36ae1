"""Names of the problems and surrogates of Bayesian optimisation, known without BoTorch."""

PROBLEMS = ("Branin", "Hartmann", "Ackley", "polynomial", "BNN draw", "PDE")
OURS, AUTHORS = "FSP-Laplace", "FSP-Laplace, the paper's settings"
GP, GAMMA_GP = "GP", "GP, gamma priors"
LAPLACE, ENSEMBLE, VBLL = "Laplace", "deep ensemble", "VBLL"
VARIATIONAL = "FVI"
SOBOL = "Sobol"
SURROGATES = (OURS, AUTHORS, GP, GAMMA_GP, LAPLACE, VARIATIONAL, ENSEMBLE, VBLL, SOBOL)
