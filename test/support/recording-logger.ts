import type { LoggerService } from '@nestjs/common';

/** Keeps what an application logs: warnings and errors apart from the rest. */
export class RecordingLogger implements LoggerService {
  readonly lines: { level: 'log' | 'warn' | 'error'; text: string }[] = [];
  /** Of the levels log and debug. */
  readonly details: string[] = [];

  log(text: unknown): void {
    this.details.push(String(text));
  }

  debug(text: unknown): void {
    this.details.push(String(text));
  }

  warn(text: unknown): void {
    this.lines.push({ level: 'warn', text: String(text) });
  }

  error(text: unknown): void {
    this.lines.push({ level: 'error', text: String(text) });
  }

  matching(pattern: RegExp): string[] {
    return this.lines.filter(({ text }) => pattern.test(text)).map(({ text }) => text);
  }
}
