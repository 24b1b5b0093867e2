/** The longest head of a response, and the longest line between two chunks, in bytes. */
const LONGEST_HEAD = 65_536;
const NOTHING = Buffer.alloc(0);

type Step = 'head' | 'body' | 'size' | 'chunk' | 'trailer' | 'done';

/** Reads one response of HTTP/1.1 from the bytes of its connection. */
export class HttpResponse {
  status = 0;
  /** Whether the connection can take another request once the response is complete. */
  keepsOpen = false;
  private step: Step = 'head';
  private rest: Buffer = NOTHING;
  /** How many bytes of the body or of its present chunk are still to come. */
  private left = 0;

  constructor(private readonly onBody: (part: Buffer) => void) {}

  get complete(): boolean {
    return this.step === 'done';
  }

  /** @throws Error for what is no response */
  read(part: Buffer): void {
    this.rest = this.rest.length === 0 ? part : Buffer.concat([this.rest, part]);
    while (!this.complete && this.advance());
    if (this.complete && this.rest.length > 0) this.keepsOpen = false;
  }

  /** The connection has ended, which completes a response of unknown length. */
  end(): void {
    if (this.step === 'body' && this.left === Infinity) this.step = 'done';
  }

  /** Whether it got on: else it needs more bytes. */
  private advance(): boolean {
    if (this.step === 'body') return this.readBody('done');
    if (this.step === 'chunk') return this.readBody('size');
    const end = this.step === 'head' ? '\r\n\r\n' : '\r\n';
    const length = this.rest.indexOf(end);
    if (length < 0 && this.rest.length > LONGEST_HEAD) throw new Error('the head of the answer has no end');
    if (length < 0) return false;
    const text = this.rest.toString('latin1', 0, length);
    this.rest = this.rest.subarray(length + end.length);
    if (this.step === 'head') this.readHead(text);
    else if (this.step === 'size') this.readSize(text);
    else if (text === '') this.step = 'done';
    return true;
  }

  private readHead(head: string): void {
    const [, minor, status] = /^HTTP\/1\.([01]) (\d{3})/.exec(head) ?? [];
    if (status === undefined) throw new Error(`not an answer of HTTP: ${head.slice(0, 100)}`);
    // It announces another one.
    if (status.startsWith('1')) return;
    this.status = Number(status);
    const coding = /\r\ntransfer-encoding:[ \t]*([^\r]*)/i.exec(head)?.[1]?.trimEnd();
    const length = /\r\ncontent-length:[ \t]*(\d+)/i.exec(head)?.[1];
    if (coding !== undefined && coding.toLowerCase() !== 'chunked') throw new Error(`the answer is coded as ${coding}`);
    this.left = Number(length ?? Infinity);
    this.keepsOpen = minor === '1' && (coding ?? length) !== undefined && !/\r\nconnection:[^\r]*\bclose\b/i.test(head);
    this.step = coding === undefined ? 'body' : 'size';
    if (this.left === 0 && this.step === 'body') this.step = 'done';
  }

  /** Each chunk ends with an empty line, which is read as the line before the next size. */
  private readSize(line: string): void {
    if (line === '') return;
    const [, size] = /^([0-9a-f]{1,12})[ \t]*(?:;|$)/i.exec(line) ?? [];
    if (size === undefined) throw new Error(`a chunk of the answer has the size ${line.slice(0, 100)}`);
    this.left = Number.parseInt(size, 16);
    this.step = this.left === 0 ? 'trailer' : 'chunk';
  }

  private readBody(next: Step): boolean {
    const part = this.rest.length > this.left ? this.rest.subarray(0, this.left) : this.rest;
    if (part.length === 0) return false;
    this.rest = this.rest.subarray(part.length);
    this.left -= part.length;
    if (this.left === 0) this.step = next;
    this.onBody(part);
    return true;
  }
}
