/** Prints lines for readers, or with `--json` one line of JSON. */
export function print(json: true | undefined, value: object, text: () => string): void {
  process.stdout.write(`${json ? JSON.stringify(value) : text()}\n`);
}
