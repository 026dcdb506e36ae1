// Radial profiles ρ(s) of stationary kernels, s = |x - y|² / ℓ², with their first two derivatives in s.
// The Matérn family with v = u² is closed under d/dv, so no 1 / u appears before the member that really has it.

export const rbf = {
  value: (s) => Math.exp(-0.5 * s),
  first: (s) => -0.5 * Math.exp(-0.5 * s),
  second: (s) => 0.25 * Math.exp(-0.5 * s),
};

export const matern12 = { value: (s) => Math.exp(-Math.sqrt(s)) };

export const matern32 = {
  value: (s) => {
    const u = Math.sqrt(3 * s);
    return (1 + u) * Math.exp(-u);
  },
  first: (s) => -1.5 * Math.exp(-Math.sqrt(3 * s)),
  // Infinite at s = 0, where it is only ever multiplied by distances that are zero.
  second: (s) => (s > 0 ? (2.25 * Math.exp(-Math.sqrt(3 * s))) / Math.sqrt(3 * s) : 0),
};

export const matern52 = {
  value: (s) => {
    const u = Math.sqrt(5 * s);
    return (1 + u + (u * u) / 3) * Math.exp(-u);
  },
  first: (s) => {
    const u = Math.sqrt(5 * s);
    return (-5 / 6) * (1 + u) * Math.exp(-u);
  },
  second: (s) => (25 / 12) * Math.exp(-Math.sqrt(5 * s)),
};

/** (1 + s / 2α)^-α. */
export const rationalQuadratic = {
  value: (s, alpha) => Math.exp(-alpha * Math.log1p((0.5 * s) / alpha)),
  first: (s, alpha) => -0.5 * Math.exp(-(alpha + 1) * Math.log1p((0.5 * s) / alpha)),
  second: (s, alpha) => ((0.25 * (alpha + 1)) / alpha) * Math.exp(-(alpha + 2) * Math.log1p((0.5 * s) / alpha)),
};

/** exp(-r^κ) with r = √s. */
export const poweredExponential = { value: (s, power) => Math.exp(-Math.pow(s, 0.5 * power)) };
