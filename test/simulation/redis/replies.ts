// What a server answers. Strings are bytes: one character of a string is one byte.

export class ErrorReply {
  constructor(readonly message: string) {}
}

export class StatusReply {
  constructor(readonly text: string) {}
}

export type Reply = null | number | string | ErrorReply | StatusReply | readonly Reply[] | ReadonlyMap<string, Reply>;

/** How a command ends early. */
export class Refused extends Error {
  constructor(readonly reply: ErrorReply) {
    super(reply.message);
  }
}
