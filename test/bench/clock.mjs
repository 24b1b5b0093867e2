/** On the machine's monotonic clock, which all processes read alike. */
export function microseconds() {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e6 + nanoseconds / 1e3;
}
