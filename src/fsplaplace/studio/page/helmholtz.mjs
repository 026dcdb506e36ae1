// The Helmholtz kernel: a plane vector field as gradient of a potential plus curl of a stream function.
//
// K(x, y) = ∇x ∇yᵀ k_Φ + R ∇x ∇yᵀ k_Ψ Rᵀ. It needs a kernel's value and its first derivatives in x and y as well, because
// products mix them: a "jet" is [k, ∂k/∂x₀, ∂k/∂x₁, ∂k/∂y₀, ∂k/∂y₁, ∂²k/∂x₀∂y₀, ∂²k/∂x₀∂y₁, ∂²k/∂x₁∂y₀, ∂²k/∂x₁∂y₁].

import { KERNELS, columnsOf, lengthAt } from "./kernels.mjs";

/** Whether a field can be made of this kernel: its functions need a derivative. */
export function hasDerivative(kernel) {
  return kernel.parts ? kernel.parts.every(hasDerivative) : kernel.kind in JETS;
}

/** Fills `block` with the 2 x 2 covariance of the field at two points, from arrays of points and offsets of rows. */
export function helmholtzPair(kernel) {
  const potential = kernel.potential && jetFunction(kernel.potential);
  const stream = kernel.stream && jetFunction(kernel.stream);
  const jet = new Float64Array(9);
  return (a, i, b, j, block) => {
    block.fill(0);
    if (potential) {
      potential(a[i], a[i + 1], b[j], b[j + 1], jet);
      for (let k = 0; k < 4; k++) block[k] += jet[5 + k];
    }
    if (stream) {
      stream(a[i], a[i + 1], b[j], b[j + 1], jet);
      block[0] += jet[8];
      block[1] -= jet[7];
      block[2] -= jet[6];
      block[3] += jet[5];
    }
  };
}

function jetFunction(kernel) {
  if (!kernel.parts) {
    if (!(kernel.kind in JETS)) throw new Error(`${kernel.kind} has no derivative, so no vector field can be made of it`);
    return JETS[kernel.kind](kernel);
  }
  const parts = kernel.parts.map(jetFunction), part = new Float64Array(9);
  const combine = kernel.kind === "sum" ? addTo : multiplyInto;
  return (x0, x1, y0, y1, jet) => {
    parts[0](x0, x1, y0, y1, jet);
    for (let p = 1; p < parts.length; p++) {
      parts[p](x0, x1, y0, y1, part);
      combine(jet, part);
    }
  };
}

function addTo(f, g) {
  for (let k = 0; k < 9; k++) f[k] += g[k];
}

function multiplyInto(f, g) {
  for (let a = 0; a < 2; a++) {
    for (let b = 0; b < 2; b++) {
      const k = 5 + 2 * a + b;
      f[k] = f[k] * g[0] + f[1 + a] * g[3 + b] + f[3 + b] * g[1 + a] + f[0] * g[k];
    }
  }
  for (let k = 1; k < 5; k++) f[k] = f[k] * g[0] + f[0] * g[k];
  f[0] *= g[0];
}

const JETS = {
  RBF: radialJet, Matern32: radialJet, Matern52: radialJet, RationalQuadratic: radialJet,
  Periodic: periodicJet, Linear: polynomialJet, Polynomial: polynomialJet, Constant: constantJet,
};

/** Derivatives of v ρ(s(d)) with d = x - y through those of s, a sum of one function of d for each column. */
function stationaryJet(variance) {
  return (first, second, value, jet, s1, s2) => {
    jet[0] = variance * value;
    for (let a = 0; a < 2; a++) {
      jet[1 + a] = variance * first * s1[a];
      jet[3 + a] = -jet[1 + a];
      for (let b = 0; b < 2; b++) {
        jet[5 + 2 * a + b] = -variance * (second * s1[a] * s1[b] + (a === b ? first * s2[a] : 0));
      }
    }
  };
}

function radialJet(kernel) {
  const { profile, shape } = KERNELS[kernel.kind];
  const parameter = shape ? kernel[shape.name] : undefined;
  const inverse = inverseSquares(kernel), fill = stationaryJet(kernel.variance);
  const s1 = [0, 0], s2 = [2 * inverse[0], 2 * inverse[1]];
  return (x0, x1, y0, y1, jet) => {
    const d0 = x0 - y0, d1 = x1 - y1;
    const s = d0 * d0 * inverse[0] + d1 * d1 * inverse[1];
    s1[0] = 2 * d0 * inverse[0];
    s1[1] = 2 * d1 * inverse[1];
    fill(profile.first(s, parameter), profile.second(s, parameter), profile.value(s, parameter), jet, s1, s2);
  };
}

function periodicJet(kernel) {
  const inverse = inverseSquares(kernel), fill = stationaryJet(kernel.variance);
  const frequency = Math.PI / kernel.period, s1 = [0, 0], s2 = [0, 0];
  return (x0, x1, y0, y1, jet) => {
    const differences = [x0 - y0, x1 - y1];
    let s = 0;
    for (let a = 0; a < 2; a++) {
      // s_a = sin²(ωd) / ℓ², so s_a' = ω sin(2ωd) / ℓ² and s_a'' = 2ω² cos(2ωd) / ℓ².
      const phase = frequency * differences[a];
      s += inverse[a] * Math.sin(phase) ** 2;
      s1[a] = inverse[a] * frequency * Math.sin(2 * phase);
      s2[a] = inverse[a] * 2 * frequency ** 2 * Math.cos(2 * phase);
    }
    const value = Math.exp(-0.5 * s);
    fill(-0.5 * value, 0.25 * value, value, jet, s1, s2);
  };
}

/** (shift + v x·y)^degree; a linear kernel has shift 0 and degree 1. */
function polynomialJet(kernel) {
  const degree = kernel.kind === "Linear" ? 1 : kernel.degree;
  const shift = kernel.kind === "Linear" ? 0 : kernel.shift;
  const weights = [0, 0];
  for (const column of columnsOf(kernel, 2)) weights[column] = kernel.variance;
  return (x0, x1, y0, y1, jet) => {
    const x = [x0, x1], y = [y0, y1];
    const base = shift + weights[0] * x0 * y0 + weights[1] * x1 * y1;
    const first = degree * Math.pow(base, degree - 1);
    const second = degree > 1 ? degree * (degree - 1) * Math.pow(base, degree - 2) : 0;
    jet[0] = Math.pow(base, degree);
    for (let a = 0; a < 2; a++) {
      jet[1 + a] = first * weights[a] * y[a];
      jet[3 + a] = first * weights[a] * x[a];
      for (let b = 0; b < 2; b++) {
        jet[5 + 2 * a + b] = second * weights[a] * y[a] * weights[b] * x[b] + (a === b ? first * weights[a] : 0);
      }
    }
  };
}

function constantJet(kernel) {
  return (x0, x1, y0, y1, jet) => {
    jet.fill(0);
    jet[0] = kernel.constant;
  };
}

/** 1 / ℓ² along both columns of the plane, zero along one that the kernel does not see. */
function inverseSquares(kernel) {
  const inverse = [0, 0];
  columnsOf(kernel, 2).forEach((column, k) => (inverse[column] = lengthAt(kernel, k) ** -2));
  return inverse;
}
