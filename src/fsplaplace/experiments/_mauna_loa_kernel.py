"""The kernel of atmospheric CO2 at Mauna Loa."""

from gpjax.kernels import RBF, AbstractKernel, Periodic, RationalQuadratic
from gpjax.parameters import PositiveReal


def mauna_loa_kernel(
    *,
    trend: tuple[float, float] = (66.0, 67.0),
    season: tuple[float, float, float] = (2.4, 90.0, 1.3),
    irregularity: tuple[float, float, float] = (0.66, 1.2, 0.78),
    weather: tuple[float, float] = (0.18, 0.134),
    scale: float = 1.0,
    time_scale: float = 1.0,
    active_dims: list[int] | None = None,
) -> AbstractKernel:
    r"""Trend, seasonal cycle and irregularities of the CO2 record as a sum of GPJax kernels.

    With δ = t - t' in years and amplitudes a in ppm,

    $$
    k = a_1^2 e^{-\delta^2 / 2 \ell_1^2}
      + a_2^2 e^{-\delta^2 / 2 \ell_2^2 - 2 \sin^2(\pi \delta) / \rho^2}
      + a_3^2 (1 + \delta^2 / 2 \alpha \ell_3^2)^{-\alpha}
      + a_4^2 e^{-\delta^2 / 2 \ell_4^2}
    $$

    Args:
        trend: amplitude and length scale (ppm, years) of the smooth rise.
        season: amplitude, decay time (ppm, years) and smoothness ρ of the yearly cycle.
        irregularity: amplitude, length scale (ppm, years) and shape α of medium-term changes.
        weather: amplitude and length scale (ppm, years) of short-term changes.
        scale: ppm per unit of the observations: their standard deviation if they were divided by it.
        time_scale: years per unit of the time column: its standard deviation if it was divided by it.
        active_dims: the time column; the first by default.

    Returns:
        A sum of four GPJax kernels. The observation noise, 0.19 ppm, belongs to the likelihood.

    Reference: Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, Section 5.4.3.
    """
    columns = [0] if active_dims is None else active_dims

    def smooth(amplitude, years):
        variance = (amplitude / scale) ** 2
        return RBF(active_dims=columns, lengthscale=years / time_scale, variance=variance)

    # GPJax writes exp(-½ sin²(πδ/p) / ℓ²) where Rasmussen and Williams write exp(-2 sin²(πδ) / ρ²): ℓ = ρ / 2.
    amplitude, decay, smoothness = season
    cycle = Periodic(active_dims=columns, lengthscale=smoothness / 2, period=1.0 / time_scale)
    seasonal = smooth(amplitude, decay) * cycle

    amplitude, years, alpha = irregularity
    medium_term = RationalQuadratic(
        active_dims=columns,
        lengthscale=years / time_scale,
        variance=(amplitude / scale) ** 2,
        alpha=PositiveReal(alpha),
    )
    return smooth(*trend) + seasonal + medium_term + smooth(*weather)
