import { Catch, HttpException, Inject, Logger, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { errorBodyOf } from './error-body.js';

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
