import { HttpException, HttpStatus } from '@nestjs/common';

/** A later leader has restocked: the database refuses this one. */
export class StaleTermException extends HttpException {
  constructor(term: number) {
    const message = `A leader of a term after ${term} has restocked`;
    super({ statusCode: 409, code: 'STALE_TERM', message }, HttpStatus.CONFLICT);
  }
}
