/** An error with the name of the one that ioredis throws when the server refuses a command: the store has answered. */
export function refusal(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}
