/** Named as what ioredis throws when the server refuses a command: the store is well, and has answered. */
export function refusal(message: string): Error {
  return Object.assign(new Error(message), { name: 'ReplyError' });
}
