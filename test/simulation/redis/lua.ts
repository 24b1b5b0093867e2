// Lua 5.1 for the scripts, synchronous. The bridge uses the raw C API: the object mapping of wasmoon costs some 7 µs for
// each `redis.call`.

import wasmoon from 'wasmoon-lua5.1';
import { ErrorReply, type Reply, StatusReply } from './replies.js';

/** The address of a Lua state, or of bytes. */
type Pointer = number;

/** What is used of the module that wasmoon has compiled. */
interface LuaModule {
  readonly HEAPU8: Uint8Array;
  _malloc(size: number): Pointer;
  addFunction(fn: (L: Pointer) => number, signature: string): Pointer;
  stringToNewUTF8(text: string): Pointer;
  _luaL_loadbuffer(L: Pointer, text: Pointer, length: number, name: Pointer): number;
  _luaL_ref(L: Pointer, table: number): number;
  _lua_createtable(L: Pointer, list: number, fields: number): void;
  _lua_getfield(L: Pointer, index: number, name: Pointer): void;
  _lua_gettop(L: Pointer): number;
  _lua_objlen(L: Pointer, index: number): number;
  _lua_pcall(L: Pointer, args: number, results: number, handler: number): number;
  _lua_pushboolean(L: Pointer, value: number): void;
  _lua_pushcclosure(L: Pointer, fn: Pointer, upvalues: number): void;
  _lua_pushlstring(L: Pointer, text: Pointer, length: number): void;
  _lua_pushnumber(L: Pointer, value: number): void;
  _lua_rawgeti(L: Pointer, index: number, place: number): void;
  _lua_rawseti(L: Pointer, index: number, place: number): void;
  _lua_setfield(L: Pointer, index: number, name: Pointer): void;
  _lua_settop(L: Pointer, index: number): void;
  _lua_toboolean(L: Pointer, index: number): number;
  _lua_tolstring(L: Pointer, index: number, length: Pointer): Pointer;
  _lua_tonumber(L: Pointer, index: number): number;
  _lua_type(L: Pointer, index: number): number;
}

interface LuaState {
  readonly luaApi: { readonly module: LuaModule };
  readonly address: Pointer;
}

const REGISTRY = -10_000;
const GLOBALS = -10_002;
const [NIL, BOOLEAN, NUMBER, STRING, TABLE] = [0, 1, 3, 4, 5];

const PRELUDE = `
local raw = __call
__call = nil
redis = {}
redis.pcall = function(...) return raw(...) end
redis.call = function(...)
  local reply = raw(...)
  if type(reply) == 'table' and reply.err then error(reply, 0) end
  return reply
end
redis.error_reply = function(text) return {err = text} end
redis.status_reply = function(text) return {ok = text} end
redis.log = function() end
for _, name in ipairs({'io', 'os', 'package', 'require', 'dofile', 'loadfile', 'print'}) do _G[name] = nil end
`;

/** Carries out one command of a script. */
export type CallCommand = (args: readonly string[]) => Reply;

export async function createLua(): Promise<LuaBridge> {
  const created: { readonly global: LuaState } = await wasmoon.Lua.create();
  return new LuaBridge(created.global.luaApi.module, created.global.address);
}

export class LuaBridge {
  private memory: Buffer = Buffer.alloc(0);
  private scratchSize = 1 << 16;
  private scratch: Pointer;
  private readonly functions = new Map<string, number>();
  private call: CallCommand = () => null;

  constructor(
    private readonly m: LuaModule,
    private readonly L: Pointer,
  ) {
    this.scratch = m._malloc(this.scratchSize);
    this.defineCall();
    if (this.load(PRELUDE) !== 0 || m._lua_pcall(L, 0, 0, 0) !== 0) throw new Error(this.popText());
  }

  /** Runs the script; `call` carries out its commands. */
  run(text: string, keys: readonly string[], args: readonly string[], call: CallCommand): Reply {
    const { m, L } = this;
    this.call = call;
    let ref = this.functions.get(text);
    if (ref === undefined) {
      if (this.load(text) !== 0) return new ErrorReply(`ERR Error compiling script: ${this.popText()}`);
      ref = m._luaL_ref(L, REGISTRY);
      this.functions.set(text, ref);
    }
    this.setGlobal('KEYS', keys);
    this.setGlobal('ARGV', args);
    m._lua_rawgeti(L, REGISTRY, ref);
    const status = m._lua_pcall(L, 0, 1, 0);
    const value = this.pop();
    return status === 0 || typeof value !== 'string' ? value : new ErrorReply(`ERR ${value}`);
  }

  private defineCall(): void {
    const pointer = this.m.addFunction((L) => {
      const args: string[] = [];
      const count = this.m._lua_gettop(L);
      for (let i = 1; i <= count; i++) args.push(this.argument(L, i));
      this.push(L, this.call(args));
      return 1;
    }, 'ii');
    this.m._lua_pushcclosure(this.L, pointer, 0);
    this.m._lua_setfield(this.L, GLOBALS, this.bytes('__call\0'));
  }

  private setGlobal(name: string, list: readonly string[]): void {
    this.push(this.L, list);
    this.m._lua_setfield(this.L, GLOBALS, this.bytes(`${name}\0`));
  }

  private load(text: string): number {
    return this.m._luaL_loadbuffer(this.L, this.bytes(text), text.length, this.m.stringToNewUTF8('@user_script'));
  }

  /** Numbers as Redis turns them into arguments: with 17 digits, without an exponent for whole ones. */
  private argument(L: Pointer, i: number): string {
    if (this.m._lua_type(L, i) !== NUMBER) return this.string(L, i);
    const number = this.m._lua_tonumber(L, i);
    return Number.isInteger(number) ? String(number) : String(Number(number.toPrecision(17)));
  }

  private pop(): Reply {
    const value = this.value(this.L, -1);
    this.m._lua_settop(this.L, -2);
    return value;
  }

  private popText(): string {
    const value = this.pop();
    return typeof value === 'string' ? value : '';
  }

  private value(L: Pointer, i: number): Reply {
    const { m } = this;
    switch (m._lua_type(L, i)) {
      case STRING:
        return this.string(L, i);
      case NUMBER:
        return Math.trunc(m._lua_tonumber(L, i));
      case BOOLEAN:
        return m._lua_toboolean(L, i) ? 1 : null;
      case TABLE:
        return this.table(L, i);
      default:
        return null;
    }
  }

  private table(L: Pointer, i: number): Reply {
    const { m } = this;
    const at = i < 0 ? m._lua_gettop(L) + i + 1 : i;
    const error = this.field(L, at, 'err');
    if (error !== undefined) return new ErrorReply(error);
    const status = this.field(L, at, 'ok');
    if (status !== undefined) return new StatusReply(status);
    const list: Reply[] = [];
    for (let place = 1; ; place++) {
      m._lua_rawgeti(L, at, place);
      if (m._lua_type(L, -1) === NIL) break;
      list.push(this.value(L, -1));
      m._lua_settop(L, -2);
    }
    m._lua_settop(L, -2);
    return list;
  }

  private field(L: Pointer, at: number, name: string): string | undefined {
    this.m._lua_getfield(L, at, this.bytes(`${name}\0`));
    const text = this.m._lua_type(L, -1) === STRING ? this.string(L, -1) : undefined;
    this.m._lua_settop(L, -2);
    return text;
  }

  private push(L: Pointer, value: Reply): void {
    const { m } = this;
    if (value === null) m._lua_pushboolean(L, 0);
    else if (typeof value === 'number') m._lua_pushnumber(L, value);
    else if (typeof value === 'string') m._lua_pushlstring(L, this.bytes(value), value.length);
    else if (value instanceof ErrorReply) this.pushField(L, 'err', value.message);
    else if (value instanceof StatusReply) this.pushField(L, 'ok', value.text);
    else {
      const list = value instanceof Map ? [...value].flat() : (value as readonly Reply[]);
      m._lua_createtable(L, list.length, 0);
      for (const [i, each] of list.entries()) {
        this.push(L, each);
        m._lua_rawseti(L, -2, i + 1);
      }
    }
  }

  private pushField(L: Pointer, name: string, text: string): void {
    this.m._lua_createtable(L, 0, 1);
    this.push(L, text);
    this.m._lua_setfield(L, -2, this.bytes(`${name}\0`));
  }

  private string(L: Pointer, i: number): string {
    const { m } = this;
    const pointer = m._lua_tolstring(L, i, 0);
    const length = m._lua_objlen(L, i);
    if (this.memory.buffer !== m.HEAPU8.buffer) this.memory = Buffer.from(m.HEAPU8.buffer);
    return this.memory.toString('latin1', pointer, pointer + length);
  }

  private bytes(text: string): Pointer {
    if (text.length > this.scratchSize) {
      this.scratchSize = 2 * text.length;
      this.scratch = this.m._malloc(this.scratchSize);
    }
    const { HEAPU8 } = this.m;
    const at = this.scratch;
    for (let i = 0; i < text.length; i++) HEAPU8[at + i] = text.charCodeAt(i);
    return at;
  }
}
