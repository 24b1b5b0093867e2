import type { LoggerService } from '@nestjs/common';

/** Keeps what an application logs. */
export class RecordingLogger implements LoggerService {
  readonly lines: { level: 'log' | 'warn' | 'error'; text: string }[] = [];

  log(): void {}

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
