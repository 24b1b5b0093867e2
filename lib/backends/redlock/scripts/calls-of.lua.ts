/** How the keys and arguments of one call are laid out. */
interface CallLayout {
  /** Keys for each name. */
  readonly keys: number;
  /** Arguments beside the number of names, which comes last and is left out where a single call is for one name. */
  readonly args: number;
}

/**
 * The end of a script that serves several calls, each for one or more names: calls the Lua function `each(first key,
 * last key, first argument)` for each of them and returns the list of results. An error fails only its own call. A
 * single call gets its result without a list around it.
 */
export function callsOf(each: string, { keys, args }: CallLayout): string {
  return `
local answers, first, arg = {}, 1, 1
while arg <= #ARGV do
  local last = first + ${keys} * (ARGV[arg + ${args}] or 1) - 1
  local fine, answer = pcall(${each}, first, last, arg)
  if not fine and type(answer) ~= 'table' then answer = {err = answer} end
  answers[#answers + 1] = answer
  first, arg = last + 1, arg + ${1 + args}
end
if #answers == 1 then return answers[1] end
return answers
`;
}
