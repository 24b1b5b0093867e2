/**
 * What the figures were taken on, a line each: `Node.js: 24.1.0`, and `redlock 5.0.0` where the value says the name.
 */
export function factLines({ environment, peers }) {
  return Object.entries({ ...environment, ...peers }).map(([name, value]) =>
    value.startsWith(`${name} `) ? value : `${name}: ${value}`,
  );
}
