/** As many digits as mean something: 12,345 and 123 and 12.3 and 1.23. */
export function rounded(number) {
  if (!Number.isFinite(number)) return '–';
  const decimals = Math.abs(number) >= 100 ? 0 : Math.abs(number) >= 10 ? 1 : 2;
  return number.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}
