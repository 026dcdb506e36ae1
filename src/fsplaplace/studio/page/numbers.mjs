// Numbers as text: as Python's format prints them, and as a person reads them.

/** What Python's f"{value:.{digits}g}" prints: the same rounding (half to even), exponents and zeros. */
export function general(value, digits) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (value === 0) return Object.is(value, -0) ? "-0" : "0";
  const sign = value < 0 ? "-" : "";
  // All digits of the binary number: an exact tie shows, which toPrecision would round up and Python to even.
  let [mantissa, exponentText] = Math.abs(value).toExponential(100).split("e");
  let exponent = Number(exponentText);
  const all = mantissa.replace(".", "");
  let kept = BigInt(all.slice(0, digits));
  const rest = all.slice(digits), half = "5" + "0".repeat(rest.length - 1);
  if (rest > half || (rest === half && kept % 2n === 1n)) kept += 1n;
  let text = kept.toString();
  if (text.length > digits) {
    text = text.slice(0, digits);
    exponent += 1;
  }
  const trimmed = (whole) => (whole.includes(".") ? whole.replace(/0+$/, "").replace(/\.$/, "") : whole);
  if (exponent < -4 || exponent >= digits) {
    const power = Math.abs(exponent).toString().padStart(2, "0");
    return `${sign}${trimmed(`${text[0]}.${text.slice(1)}`)}e${exponent < 0 ? "-" : "+"}${power}`;
  }
  if (exponent < 0) return sign + trimmed(`0.${"0".repeat(-exponent - 1)}${text}`);
  return sign + trimmed(`${text.slice(0, exponent + 1)}.${text.slice(exponent + 1)}`);
}

/** The number with so many significant digits, as a number: what a slider shows is then exactly what is computed with. */
export function rounded(value, digits = 4) {
  return Number(value.toPrecision(digits));
}

/** For reading: four digits, a true minus sign, and no exponent where a person needs none. */
export function readable(value, digits = 4) {
  if (!Number.isFinite(value)) return "none";
  const size = Math.abs(value);
  const text = size !== 0 && (size >= 1e6 || size < 1e-4) ? general(value, digits) : String(rounded(value, digits));
  return text.replace("-", "−");
}
