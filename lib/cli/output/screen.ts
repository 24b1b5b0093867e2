const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';
const HOME = '\u001b[H';
const CLEAR_LINE = '\u001b[K';
const CLEAR_BELOW = '\u001b[J';

/**
 * Draws text over the text before, on the alternate screen of a terminal: what stood there before comes back at the
 * end. Prints one text below the other where stdout is no terminal.
 */
export class Screen {
  private readonly isTerminal = process.stdout.isTTY;
  private readonly restore = () => process.stdout.write(LEAVE);

  /** How many lines fit. */
  get rows(): number {
    return this.isTerminal ? process.stdout.rows : Infinity;
  }

  open(): void {
    if (!this.isTerminal) return;
    process.once('exit', this.restore);
    process.stdout.write(ENTER);
  }

  draw(lines: readonly string[]): void {
    if (!this.isTerminal) return void process.stdout.write(`${lines.join('\n')}\n`);
    const columns = process.stdout.columns;
    const cut = lines.slice(0, this.rows).map((line) => line.slice(0, columns) + CLEAR_LINE);
    process.stdout.write(HOME + cut.join('\r\n') + CLEAR_BELOW);
  }

  close(): void {
    if (!this.isTerminal) return;
    process.off('exit', this.restore);
    this.restore();
  }
}
