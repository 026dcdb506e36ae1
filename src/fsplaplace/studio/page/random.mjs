// Random numbers that are the same at every visit: an address that is passed on shows the same functions.

/** Uniform numbers in (0, 1) from a seed (Mulberry32). */
export function uniform(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
}

/** `count` standard normal numbers (Box and Muller). */
export function normals(seed, count) {
  const next = uniform(seed);
  return Float64Array.from({ length: count }, () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next()));
}

/** `count` of the numbers 0 ... n - 1, each as likely as any other, in ascending order. */
export function sampleOf(n, count, seed) {
  const next = uniform(seed), chosen = [];
  for (let i = 0; i < n && chosen.length < count; i++) {
    if (next() * (n - i) < count - chosen.length) chosen.push(i);
  }
  return chosen;
}
