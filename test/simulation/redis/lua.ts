// Lua 5.1 for the scripts, synchronous. The bridge uses the raw C API, and reads arguments and results where Lua keeps
// them: the object mapping of wasmoon costs some 7 µs for each `redis.call`, a string over the C API 0.3.

import wasmoon from 'wasmoon-lua5.1';
import { DoubleReply, ErrorReply, numberText, type Reply, StatusReply } from './replies.js';

/** The address of a Lua state, or of bytes. */
type Pointer = number;

interface LuaState {
  readonly luaApi: { readonly module: LuaModule };
  readonly address: Pointer;
}

/** What is used of the module around the functions of Lua. */
interface LuaModule {
  readonly HEAPU8: Uint8Array;
  addFunction(fn: (L: Pointer) => number, signature: string): Pointer;
  stringToNewUTF8(text: string): Pointer;
}

/** The functions of Lua that are used. */
interface LuaFunctions {
  malloc(size: number): Pointer;
  luaL_loadbuffer(L: Pointer, text: Pointer, length: number, name: Pointer): number;
  luaL_ref(L: Pointer, table: number): number;
  lua_createtable(L: Pointer, list: number, fields: number): void;
  lua_error(L: Pointer): number;
  lua_gc(L: Pointer, what: number, value: number): number;
  lua_getfield(L: Pointer, index: number, name: Pointer): void;
  lua_pcall(L: Pointer, args: number, results: number, handler: number): number;
  lua_pushboolean(L: Pointer, value: number): void;
  lua_pushcclosure(L: Pointer, fn: Pointer, upvalues: number): void;
  lua_pushlstring(L: Pointer, text: Pointer, length: number): void;
  lua_pushnumber(L: Pointer, value: number): void;
  lua_rawgeti(L: Pointer, index: number, place: number): void;
  lua_rawseti(L: Pointer, index: number, place: number): void;
  lua_setfield(L: Pointer, index: number, name: Pointer): void;
  lua_settop(L: Pointer, index: number): void;
}

/** The part of WebAssembly that is used here; the types of Node do not have it. */
interface Wasm {
  instantiate(...code: unknown[]): Promise<{ readonly instance?: { readonly exports: unknown } }>;
}

const REGISTRY = -10_000;
const GLOBALS = -10_002;

// The structs of Lua 5.1, compiled for 32 bits. A value: 8 bytes of number or pointer, then its type.
const [NIL, BOOLEAN, NUMBER, STRING, TABLE] = [0, 1, 3, 4, 5];
const VALUE_SIZE = 16;
const TYPE_OF_VALUE = 8;
const TOP_OF_STATE = 8;
const BASE_OF_STATE = 12;
const HASH_OF_STRING = 8;
const LENGTH_OF_STRING = 12;
const BYTES_OF_STRING = 16;

const SET_PAUSE_OF_COLLECTOR = 6;
/** How far the memory grows before the next collection (percent): the usual 200 marks all scripts every few runs. */
const PAUSE_OF_COLLECTOR = 1_000;

/** How many strings are remembered; one that comes again is not read again. */
const REMEMBERED = 4096;

const PRELUDE = `
redis = {call = __call, pcall = __pcall}
redis.error_reply = function(text) return {err = text} end
redis.status_reply = function(text) return {ok = text} end
redis.log = function() end
local json = __json
cjson = {decode = function(text) return json(text) end}
KEYS, ARGV = {}, {}
local digit_of = tonumber
long_integer = function(text, base)
  local value = 0
  for digit in string.gmatch(text, '.') do
    local place = digit_of(digit, base)
    if not place then return nil end
    value = value * base + place
  end
  return value
end
for _, name in ipairs({'__call', '__pcall', '__json', 'io', 'os', 'package', 'require', 'dofile', 'loadfile', 'print'}) do
  _G[name] = nil
end
setmetatable(_G, {
  __newindex = function(_, name) error('Script attempted to create global variable ' .. tostring(name), 2) end,
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. tostring(name), 2) end,
})
`;

/** Carries out one command of a script. */
export type CallCommand = (args: readonly string[]) => Reply;

/**
 * A new Lua. Takes the functions from where WebAssembly hands them out: those of the module check and describe every
 * call, which costs more than the call.
 */
export async function createLua(): Promise<LuaBridge> {
  const wasm = Reflect.get(globalThis, 'WebAssembly') as Wasm;
  const { instantiate } = wasm;
  let functions: unknown;
  wasm.instantiate = async (...code) => {
    const instantiated = await instantiate(...code);
    // Node.js makes instances of modules of its own meanwhile, which come without a wrapper.
    functions = instantiated.instance?.exports ?? functions;
    return instantiated;
  };
  try {
    const { global }: { readonly global: LuaState } = await wasmoon.Lua.create();
    return new LuaBridge(global.luaApi.module, functions as LuaFunctions, global.address);
  } finally {
    wasm.instantiate = instantiate;
  }
}

export class LuaBridge {
  // Views of the memory of Lua, which moves when it grows.
  private bytes: Uint8Array = new Uint8Array();
  private words: Uint32Array = new Uint32Array();
  private doubles: Float64Array = new Float64Array();
  private buffer: Buffer = Buffer.alloc(0);

  private scratchSize = 1 << 16;
  private scratch: Pointer;
  private readonly functions = new Map<string, number>();
  private readonly names = new Map<string, Pointer>();
  private readonly strings: string[] = Array.from({ length: REMEMBERED }, () => '');
  private call: CallCommand = () => null;

  constructor(
    private readonly module: LuaModule,
    private readonly lua: LuaFunctions,
    private readonly L: Pointer,
  ) {
    this.scratch = lua.malloc(this.scratchSize);
    lua.lua_gc(L, SET_PAUSE_OF_COLLECTOR, PAUSE_OF_COLLECTOR);
    this.define('__call', (args) => {
      const reply = this.call(args);
      this.push(reply);
      return reply instanceof ErrorReply ? lua.lua_error(L) : 1;
    });
    this.define('__pcall', (args) => {
      this.push(this.call(args));
      return 1;
    });
    this.define('__json', ([text = '']) => {
      this.push(JSON.parse(text) as Reply);
      return 1;
    });
    if (this.load(PRELUDE) !== 0 || lua.lua_pcall(L, 0, 0, 0) !== 0) throw new Error(this.popText());
    this.push(['layout', 1]);
    const [text, number] = this.pop() as Reply[];
    if (text !== 'layout' || number !== 1) throw new Error('Lua was compiled to another layout of its structs');
  }

  /** Runs the script; `call` carries out its commands. */
  run(text: string, keys: readonly string[], args: readonly string[], call: CallCommand): Reply {
    const { lua, L } = this;
    this.call = call;
    let ref = this.functions.get(text);
    if (ref === undefined) {
      if (this.load(text) !== 0) return new ErrorReply(`ERR Error compiling script: ${this.popText()}`);
      ref = lua.luaL_ref(L, REGISTRY);
      this.functions.set(text, ref);
    }
    this.push(keys);
    lua.lua_setfield(L, GLOBALS, this.name('KEYS'));
    this.push(args);
    lua.lua_setfield(L, GLOBALS, this.name('ARGV'));
    lua.lua_rawgeti(L, REGISTRY, ref);
    const status = lua.lua_pcall(L, 0, 1, 0);
    const value = this.pop();
    return status === 0 || typeof value !== 'string' ? value : new ErrorReply(`ERR ${value}`);
  }

  /** A function of Lua that pushes its results and returns their number. */
  private define(name: string, fn: (args: readonly string[]) => number): void {
    const { lua, L } = this;
    const pointer = this.module.addFunction(() => {
      this.look();
      const top = this.words[(L + TOP_OF_STATE) >> 2] ?? 0;
      const args: string[] = [];
      for (let at = this.words[(L + BASE_OF_STATE) >> 2] ?? 0; at < top; at += VALUE_SIZE) args.push(this.argument(at));
      return fn(args);
    }, 'ii');
    lua.lua_pushcclosure(L, pointer, 0);
    lua.lua_setfield(L, GLOBALS, this.name(name));
  }

  private load(script: string): number {
    const text = withLongIntegers(script);
    return this.lua.luaL_loadbuffer(this.L, this.write(text), text.length, this.name('@user_script'));
  }

  private argument(at: Pointer): string {
    const type = this.words[(at + TYPE_OF_VALUE) >> 2];
    if (type === STRING) return this.string(at);
    if (type !== NUMBER) throw new Error('The model knows strings and numbers as arguments of a command');
    return numberText(this.doubles[at >> 3] ?? 0);
  }

  private pop(): Reply {
    const value = this.lastValue();
    this.lua.lua_settop(this.L, -2);
    return value;
  }

  private popText(): string {
    const value = this.pop();
    return typeof value === 'string' ? value : '';
  }

  /** What is on top of the stack. */
  private lastValue(): Reply {
    this.look();
    const at = (this.words[(this.L + TOP_OF_STATE) >> 2] ?? 0) - VALUE_SIZE;
    switch (this.words[(at + TYPE_OF_VALUE) >> 2]) {
      case STRING:
        return this.string(at);
      case NUMBER:
        return wholeNumber(this.doubles[at >> 3] ?? 0);
      case BOOLEAN:
        return this.words[at >> 2] === 0 ? null : 1;
      case TABLE:
        return this.table();
      default:
        return null;
    }
  }

  private table(): Reply {
    const { lua, L } = this;
    const list: Reply[] = [];
    for (let place = 1; ; place++) {
      lua.lua_rawgeti(L, -1, place);
      const ended = this.lastType() === NIL;
      if (!ended) list.push(this.lastValue());
      lua.lua_settop(L, -2);
      if (ended) break;
    }
    if (list.length > 0) return list;
    const error = this.field('err');
    if (error !== undefined) return new ErrorReply(error);
    const status = this.field('ok');
    return status === undefined ? list : new StatusReply(status);
  }

  private field(name: string): string | undefined {
    this.lua.lua_getfield(this.L, -1, this.name(name));
    const value = this.pop();
    return typeof value === 'string' ? value : undefined;
  }

  private lastType(): number | undefined {
    this.look();
    return this.words[((this.words[(this.L + TOP_OF_STATE) >> 2] ?? 0) - VALUE_SIZE + TYPE_OF_VALUE) >> 2];
  }

  private push(value: Reply): void {
    const { lua, L } = this;
    if (typeof value === 'string') lua.lua_pushlstring(L, this.write(value), value.length);
    else if (value === null) lua.lua_pushboolean(L, 0);
    else if (typeof value === 'number') lua.lua_pushnumber(L, value);
    else if (value instanceof ErrorReply) this.pushField('err', value.message);
    else if (value instanceof StatusReply) this.pushField('ok', value.text);
    else if (value instanceof DoubleReply) this.push(value.text);
    else {
      const list = Array.isArray(value) ? (value as readonly Reply[]) : [...(value as Iterable<Reply>)].flat();
      lua.lua_createtable(L, list.length, 0);
      for (let i = 0; i < list.length; i++) {
        this.push(list[i] ?? null);
        lua.lua_rawseti(L, -2, i + 1);
      }
    }
  }

  private pushField(name: string, text: string): void {
    this.lua.lua_createtable(this.L, 0, 1);
    this.push(text);
    this.lua.lua_setfield(this.L, -2, this.name(name));
  }

  private string(at: Pointer): string {
    const pointer = this.words[at >> 2] ?? 0;
    const length = this.words[(pointer + LENGTH_OF_STRING) >> 2] ?? 0;
    const start = pointer + BYTES_OF_STRING;
    const place = (this.words[(pointer + HASH_OF_STRING) >> 2] ?? 0) % REMEMBERED;
    const known = this.strings[place] ?? '';
    if (known.length === length) {
      let i = 0;
      while (i < length && this.bytes[start + i] === known.charCodeAt(i)) i++;
      if (i === length) return known;
    }
    const text = this.buffer.toString('latin1', start, start + length);
    this.strings[place] = text;
    return text;
  }

  /** The memory after Lua has run. */
  private look(): void {
    const { HEAPU8 } = this.module;
    if (this.bytes === HEAPU8) return;
    this.bytes = HEAPU8;
    this.words = new Uint32Array(HEAPU8.buffer);
    this.doubles = new Float64Array(HEAPU8.buffer);
    this.buffer = Buffer.from(HEAPU8.buffer);
  }

  private name(text: string): Pointer {
    let name = this.names.get(text);
    if (name === undefined) this.names.set(text, (name = this.module.stringToNewUTF8(text)));
    return name;
  }

  /** Writes the text where the next one overwrites it. */
  private write(text: string): Pointer {
    if (text.length > this.scratchSize) {
      this.scratchSize = 2 * text.length;
      this.scratch = this.lua.malloc(this.scratchSize);
    }
    this.look();
    const { bytes, scratch } = this;
    for (let i = 0; i < text.length; i++) bytes[scratch + i] = text.charCodeAt(i);
    return scratch;
  }
}

/** Integers of this Lua have 32 bits where those of a server have 64: in formats, and in numbers of another base. */
function withLongIntegers(script: string): string {
  return script
    .replaceAll(/string\.format\('[^']*'/g, (start) => start.replaceAll('%d', '%.0f'))
    .replaceAll(/\btonumber\((\w+), (\d+)\)/g, 'long_integer($1, $2)');
}

/** As the conversion of the processor: what is no 64-bit integer becomes the least one. */
function wholeNumber(value: number): number {
  return Math.abs(value) < 2 ** 63 ? Math.trunc(value) : -(2 ** 63);
}
