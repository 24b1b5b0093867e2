import { PrimitiveError } from './primitive-errors.js';

/** This process does not lead: nothing ran. Another process may. HTTP 503. */
export class NotLeaderError extends PrimitiveError<'NOT_LEADER'> {
  constructor(name: string) {
    super({
      code: 'NOT_LEADER',
      status: 503,
      publicMessage: 'This instance cannot serve the request. Try again.',
      message: `This process does not lead "${name}"; ask the leader, or use a candidacy to run on the leader only`,
      keys: [name],
    });
  }
}
