/** An error with the name that ioredis gives to errors that the server answered: it counts as an answer. */
export function refusal(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}
