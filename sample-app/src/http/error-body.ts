import {
  Catch,
  HttpException,
  HttpStatus,
  Inject,
  Logger,
  type ArgumentsHost,
  type ExceptionFilter,
} from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { ApiProperty } from '@nestjs/swagger';

/** The body of every error answer. */
export class ErrorBody {
  @ApiProperty({ example: 409 })
  statusCode!: number;

  @ApiProperty({ example: 'OUT_OF_STOCK', description: 'What programs tell errors apart by' })
  code!: string;

  @ApiProperty({ example: 'Only 0 of teapot left' })
  message!: string;
}

/** An error of the shop, which programs tell apart from others by its code. */
export class ShopException extends HttpException {
  constructor(statusCode: HttpStatus, code: string, message: string, cause?: unknown) {
    super({ statusCode, code, message }, statusCode, { cause });
  }
}

/** Gives all errors one shape, wherever they come from. */
@Catch()
export class ErrorBodyFilter implements ExceptionFilter {
  private readonly logger = new Logger(ErrorBodyFilter.name);

  constructor(@Inject(HttpAdapterHost) private readonly host: HttpAdapterHost) {}

  catch(error: unknown, context: ArgumentsHost): void {
    const { httpAdapter } = this.host;
    const response: unknown = context.switchToHttp().getResponse();
    const body = errorBodyOf(error);
    if (body.statusCode >= 500 && !(error instanceof HttpException)) this.logger.error(error);
    if (httpAdapter.isHeadersSent(response)) httpAdapter.end(response);
    else httpAdapter.reply(response, body, body.statusCode);
  }
}

/** What errors of Nest and its modules may have in addition to ours. */
interface Described {
  readonly code?: unknown;
  readonly message?: unknown;
  /** From the health check: the state of each part, by name. */
  readonly details?: Readonly<Record<string, { readonly status: string }>>;
}

function errorBodyOf(error: unknown): ErrorBody {
  if (error instanceof HttpException) return bodyOfHttpException(error);
  const status = refusedStatus(error);
  if (status !== undefined) return { statusCode: status, code: nameOf(status), message: (error as Error).message };
  return { statusCode: 500, code: nameOf(500), message: 'The shop failed. The outcome of the request is unknown.' };
}

function bodyOfHttpException(error: HttpException): ErrorBody {
  const statusCode = error.getStatus();
  const said = error.getResponse();
  const described: Described = typeof said === 'string' ? { message: said } : said;
  const { code, message, details } = described;
  return {
    ...(details && described),
    statusCode,
    code: typeof code === 'string' ? code : nameOf(statusCode),
    message: details ? `Out of order: ${downOf(details).join(', ')}` : textOf(message ?? error.message),
  };
}

function downOf(details: NonNullable<Described['details']>): string[] {
  return Object.keys(details).filter((name) => details[name]?.status !== 'up');
}

/** Joins the messages of the validation. */
function textOf(message: unknown): string {
  return Array.isArray(message) ? message.join('; ') : String(message);
}

/** The status of an error that a request parser threw; it is below 500. */
function refusedStatus(error: unknown): number | undefined {
  const { statusCode } = (error ?? {}) as { statusCode?: unknown };
  return typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500 ? statusCode : undefined;
}

function nameOf(status: number): string {
  return HttpStatus[status] ?? `HTTP_${status}`;
}
