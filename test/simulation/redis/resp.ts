// The wire format, RESP2 and RESP3, on strings of bytes.

import { DoubleReply, ErrorReply, type Reply, StatusReply } from './replies.js';

export type Protocol = 2 | 3;

/** The whole commands at the front of `text`, and the rest. */
export function parseCommands(text: string): { readonly commands: string[][]; readonly rest: string } {
  const commands: string[][] = [];
  let at = 0;
  for (;;) {
    let end = text.indexOf('\r\n', at);
    if (end < 0) break;
    if (text[at] !== '*') throw new Error(`Not a command: ${JSON.stringify(text.slice(at, at + 20))}`);
    const count = Number(text.slice(at + 1, end));
    let next = end + 2;
    const args: string[] = [];
    while (args.length < count) {
      end = text.indexOf('\r\n', next);
      if (end < 0) break;
      const length = Number(text.slice(next + 1, end));
      if (text.length < end + 2 + length + 2) break;
      args.push(text.slice(end + 2, end + 2 + length));
      next = end + 2 + length + 2;
    }
    if (args.length < count) break;
    commands.push(args);
    at = next;
  }
  return { commands, rest: text.slice(at) };
}

export function encode(reply: Reply, protocol: Protocol): string {
  if (reply === null) return protocol === 3 ? '_\r\n' : '$-1\r\n';
  if (typeof reply === 'number') return `:${Number.isSafeInteger(reply) ? reply : BigInt(reply)}\r\n`;
  if (typeof reply === 'string') return `$${reply.length}\r\n${reply}\r\n`;
  if (reply instanceof ErrorReply) return `-${reply.message.replaceAll(/[\r\n]/g, ' ')}\r\n`;
  if (reply instanceof StatusReply) return `+${reply.text}\r\n`;
  if (reply instanceof DoubleReply) return protocol === 3 ? `,${reply.text}\r\n` : encode(reply.text, protocol);
  if (reply instanceof Set) {
    const list = encode([...(reply as ReadonlySet<string>)], protocol);
    return protocol === 3 ? `~${list.slice(1)}` : list;
  }
  if (reply instanceof Map) {
    const flat = [...(reply as ReadonlyMap<string, Reply>)].flat().map((each) => encode(each, protocol));
    return `${protocol === 3 ? `%${flat.length / 2}` : `*${flat.length}`}\r\n${flat.join('')}`;
  }
  const list = reply as readonly Reply[];
  return `*${list.length}\r\n${list.map((each) => encode(each, protocol)).join('')}`;
}

/** A message that no command asked for. */
export function encodePush(push: readonly Reply[], protocol: Protocol): string {
  const text = encode(push, protocol);
  return protocol === 3 ? `>${text.slice(1)}` : text;
}

/** Where the first whole answer or message of `text` ends; -1 where it is not whole. */
export function frameEnd(text: string, at: number): number {
  const lineEnd = text.indexOf('\r\n', at);
  if (lineEnd < 0) return -1;
  const next = lineEnd + 2;
  const size = Number(text.slice(at + 1, lineEnd));
  switch (text[at]) {
    case '$':
    case '=': {
      const end = size < 0 ? next : next + size + 2;
      return end <= text.length ? end : -1;
    }
    case '*':
    case '>':
    case '~':
    case '%': {
      let end = next;
      for (let left = text[at] === '%' ? 2 * size : size; left > 0 && end >= 0; left--) end = frameEnd(text, end);
      return end;
    }
    default:
      return next;
  }
}

/** What an answer of simple parts is: strings, whole numbers, and lists of them. */
export function parseFrame(text: string): unknown {
  let at = 0;
  const next = (): unknown => {
    const type = text[at];
    const lineEnd = text.indexOf('\r\n', at);
    const line = text.slice(at + 1, lineEnd);
    at = lineEnd + 2;
    if (type === ':') return Number(line);
    if (type === '*') return Array.from({ length: Number(line) }, next);
    if (type !== '$') throw new Error(`Not a simple part of an answer: ${String(type)}${line}`);
    const start = at;
    at += Number(line) + 2;
    return text.slice(start, at - 2);
  };
  return next();
}
