// The kernels of fsplaplace's registry: what they are called, what their parameters mean, and their value at one pair of points.
//
// A kernel is plain data: {kind: "RBF", lengthscale: 0.5, variance: 1}, with `columns` where it sees some of the inputs only;
// `lengthscale` is a number or a list with one for each of its columns. Sums and products are {kind: "sum", parts: [...]} and
// {kind: "product", parts: [...]}; a vector field is {kind: "Helmholtz", potential: kernel or null, stream: kernel or null}.

import { matern12, matern32, matern52, poweredExponential, rationalQuadratic, rbf } from "./profiles.mjs";

// What a parameter is measured in decides its slider: x and y are units of input and target.
const LENGTH = { name: "lengthscale", label: "length scale", unit: "x" };
const SIZE = { name: "variance", label: "size (standard deviation)", unit: "y²" };

/** Every kernel by its class name in Python. `word` is what the page calls it, `says` what its functions look like. */
export const KERNELS = {
  RBF: radial("very smooth", "infinitely smooth, one length scale", rbf, () => Infinity),
  Matern52: radial("smooth", "smooth, as most measured curves are", matern52, () => 2.5),
  Matern32: radial("slightly rough", "has a slope everywhere, bends sharply", matern32, () => 1.5),
  Matern12: radial("kinked", "rough, like a random walk that returns", matern12, () => 0.5),
  RationalQuadratic: radial("many scales", "smooth, short and long changes at once", rationalQuadratic, () => Infinity, {
    name: "alpha", label: "mix of scales α (small: many)", unit: "1", low: 0.05, high: 50,
  }),
  PoweredExponential: radial(
    "adjustable", "from kinked (power 1) to smooth (power 2)", poweredExponential,
    (kernel) => (kernel.power < 2 ? kernel.power / 2 : Infinity),
    { name: "power", label: "power", unit: "1", low: 0.2, high: 2 },
  ),
  Periodic: {
    word: "repeats", says: "the same pattern again and again", kind: "scaled",
    parameters: [
      { name: "period", label: "period", unit: "x" },
      { name: "lengthscale", label: "wiggle within a period (small: much)", unit: "1", low: 0.1, high: 10 },
      SIZE,
    ],
    pair: periodicPair,
    smoothness: () => Infinity,
    lengthscales: (kernel, width) => along(kernel, width, (k) => (lengthAt(kernel, k) * kernel.period) / Math.PI),
  },
  Linear: {
    word: "trend", says: "straight lines through zero", kind: "scale-free",
    parameters: [{ name: "variance", label: "slope (standard deviation)", unit: "y²/x²" }],
    pair: (kernel, width) => {
      const product = inner(kernel, width);
      return (a, i, b, j) => kernel.variance * product(a, i, b, j);
    },
  },
  Polynomial: {
    word: "curved trend", says: "polynomials of the degree chosen", kind: "scale-free",
    parameters: [
      { name: "degree", label: "degree", unit: "1", choices: [2, 3, 4] },
      { name: "shift", label: "shift", unit: "1", low: 0.01, high: 100 },
      { name: "variance", label: "growth per unit of input", unit: "1/x²" },
    ],
    pair: (kernel, width) => {
      const product = inner(kernel, width);
      return (a, i, b, j) => Math.pow(kernel.shift + kernel.variance * product(a, i, b, j), kernel.degree);
    },
  },
  Constant: {
    word: "offset", says: "one level that is not known", kind: "scale-free",
    parameters: [{ name: "constant", label: "size (standard deviation)", unit: "y²" }],
    pair: (kernel) => () => kernel.constant,
  },
  White: {
    word: "jumps", says: "every input a value of its own", kind: "noise",
    parameters: [SIZE],
    // As in GPJax, white noise looks at all columns, whatever `columns` says.
    pair: (kernel, width) => (a, i, b, j) => {
      for (let k = 0; k < width; k++) if (a[i + k] !== b[j + k]) return 0;
      return kernel.variance;
    },
  },
  ArcCosine: {
    word: "like a wide network", says: "what a very wide network of one layer draws", kind: "scaled",
    parameters: [
      { name: "order", label: "order (0 steps, 1 ReLU, 2 smoother)", unit: "1", choices: [0, 1, 2] },
      SIZE,
      { name: "weight_variance", label: "weights (variance)", unit: "1/x²" },
      { name: "bias_variance", label: "biases (variance)", unit: "1", low: 0.01, high: 100 },
    ],
    pair: arcCosinePair,
    smoothness: (kernel) => kernel.order + 0.5,
  },
};

/** Columns that the kernel sees, of inputs with `width` columns. */
export function columnsOf(kernel, width) {
  return kernel.columns ?? Array.from({ length: width }, (_, k) => k);
}

/** The length scale along the k-th of the kernel's columns. */
export function lengthAt(kernel, k) {
  return Array.isArray(kernel.lengthscale) ? kernel.lengthscale[k] : kernel.lengthscale;
}

/** One number for each of `width` columns: `value(k)` along the kernel's k-th column, infinite along others. */
function along(kernel, width, value) {
  const scales = new Array(width).fill(Infinity);
  columnsOf(kernel, width).forEach((column, k) => (scales[column] = value(k)));
  return scales;
}

function radial(word, says, profile, smoothness, shape = null) {
  return {
    word, says, kind: "scaled", profile, shape, smoothness,
    parameters: [LENGTH, SIZE, ...(shape ? [shape] : [])],
    lengthscales: (kernel, width) => along(kernel, width, (k) => lengthAt(kernel, k)),
    pair: (kernel, width) => {
      const distance = scaledDistance(kernel, width);
      const { variance } = kernel;
      if (!shape) return (a, i, b, j) => variance * profile.value(distance(a, i, b, j));
      const parameter = kernel[shape.name];
      return (a, i, b, j) => variance * profile.value(distance(a, i, b, j), parameter);
    },
  };
}

/** s = Σ ((x_k - y_k) / ℓ_k)² over the kernel's columns, from two arrays of points and the offsets of two rows. */
export function scaledDistance(kernel, width) {
  const columns = columnsOf(kernel, width);
  const scales = columns.map((_, k) => lengthAt(kernel, k));
  if (columns.length === 1) {
    const [column] = columns, [scale] = scales;
    return (a, i, b, j) => {
      const difference = (a[i + column] - b[j + column]) / scale;
      return difference * difference;
    };
  }
  return (a, i, b, j) => {
    let total = 0;
    for (let k = 0; k < columns.length; k++) {
      const difference = (a[i + columns[k]] - b[j + columns[k]]) / scales[k];
      total += difference * difference;
    }
    return total;
  };
}

function periodicPair(kernel, width) {
  const columns = columnsOf(kernel, width);
  const scales = columns.map((_, k) => lengthAt(kernel, k));
  const frequency = Math.PI / kernel.period;
  return (a, i, b, j) => {
    let total = 0;
    for (let k = 0; k < columns.length; k++) {
      const sine = Math.sin(frequency * (a[i + columns[k]] - b[j + columns[k]])) / scales[k];
      total += sine * sine;
    }
    return kernel.variance * Math.exp(-0.5 * total);
  };
}

function inner(kernel, width) {
  const columns = columnsOf(kernel, width);
  return (a, i, b, j) => {
    let total = 0;
    for (const column of columns) total += a[i + column] * b[j + column];
    return total;
  };
}

/** v / π (|φ(x)| |φ(y)|)^n J_n(θ) with φ(x) = (√w x, √b) and θ the angle between φ(x) and φ(y). */
function arcCosinePair(kernel, width) {
  const product = inner(kernel, width);
  const angular = [
    (theta) => Math.PI - theta,
    (theta) => Math.sin(theta) + (Math.PI - theta) * Math.cos(theta),
    (theta) => 3 * Math.sin(theta) * Math.cos(theta) + (Math.PI - theta) * (1 + 2 * Math.cos(theta) ** 2),
  ][kernel.order];
  const columns = columnsOf(kernel, width);
  return (a, i, b, j) => {
    const own = Math.sqrt(kernel.weight_variance * product(a, i, a, i) + kernel.bias_variance);
    const other = Math.sqrt(kernel.weight_variance * product(b, j, b, j) + kernel.bias_variance);
    // Squared distance between the two directions: accurate where the angle is small, as the arc cosine is not.
    let s = kernel.bias_variance * (1 / own - 1 / other) ** 2;
    for (const column of columns) s += kernel.weight_variance * (a[i + column] / own - b[j + column] / other) ** 2;
    const theta = 2 * Math.atan2(Math.sqrt(s), Math.sqrt(Math.max(4 - s, 0)));
    return (kernel.variance / Math.PI) * Math.pow(own * other, kernel.order) * angular(theta);
  };
}
