import { LockConfigError } from '../../lib/errors/lock-errors.js';
import { zookeeper, type ZooKeeperOptions } from 'nest-redis-lock/zookeeper';
import { parentPath, ticketOf, childPrefix, inOrder, isWorn } from '../../lib/backends/zookeeper/lock-node.js';
import { failureOf } from '../../lib/backends/zookeeper/zookeeper-lock-backend.js';
import { zooKeeperSettings } from '../../lib/backends/zookeeper/zookeeper-options.js';

it('names the servers once in the cause of a failure', () => {
  const settings = zooKeeperSettings('127.0.0.1:2181');
  const first = failureOf(settings, 'no server can be reached');
  expect(first?.message).toMatch(/^ZooKeeper at 127\.0\.0\.1:2181: no server can be reached/);
  expect(failureOf(settings, 'no server can be reached', first)).toBe(first);
});

describe('the order of nodes', () => {
  it('is that of their numbers, whatever their tickets are, and ignores other nodes', () => {
    const nodes = ['b-lock-0000000010', 'a-lock-0000000011', 'z-lock-0000000009', 'config', 'x-lock-12'];
    expect(inOrder(nodes)).toEqual(['z-lock-0000000009', 'b-lock-0000000010', 'a-lock-0000000011']);
  });

  it('continues after the numbers of 32 bits wrap', () => {
    const nodes = ['c-lock--2147483648', 'a-lock-2147483646', 'd-lock--2147483647', 'b-lock-2147483647'];
    expect(inOrder(nodes).map((node) => node[0])).toEqual(['a', 'b', 'c', 'd']);
  });

  it('asks for a new parent long before they wrap', () => {
    expect(['a-lock-0000000000', 'a-lock-1073741823'].map(isWorn)).toEqual([false, false]);
    expect(['a-lock-1073741824', 'a-lock-2147483647', 'a-lock--2147483648'].map(isWorn)).toEqual([true, true, true]);
  });
});

describe('the path of a name', () => {
  it('differs for different names and prefixes', () => {
    const long = 'x'.repeat(300);
    const names = [
      'a',
      'A',
      'a/b',
      'a%2Fb',
      '.',
      '..',
      '~',
      long,
      `${long}x`,
      'a:b',
      ' a',
      'a ',
      '\u0000',
      '\u{1f512}',
    ];
    const requests = [...names.map((name) => ({ name })), { prefix: 'a', name: 'b' }, { prefix: 'a:b', name: 'c' }];
    const paths = requests.map((request) => parentPath('/locks', request));
    expect(new Set(paths).size).toBe(requests.length);
    for (const path of paths) expect(path).toMatch(/^\/locks\/(?!\.\.?$)[\x21-\x7e]{1,420}$/);
  });

  it('shows the ticket of a node', () => {
    expect(ticketOf(`${childPrefix('4f/x:17')}0000000003`)).toBe('4f/x:17');
    expect(ticketOf('%zz-lock-0000000003')).toBe('%zz-lock-0000000003');
  });
});

describe('options', () => {
  it.each<[unknown, RegExp]>([
    ['', /"zookeeper.servers" is ""; give servers/],
    [undefined, /"zookeeper" is undefined/],
    [{}, /"zookeeper.servers" is undefined/],
    ['a:b:c', /"zookeeper.servers" is "a:b:c"/],
    [{ servers: ['a:1', 'b c'] }, /"zookeeper.servers"/],
    [{ servers: 'a', sessionTimeout: 10 }, /"zookeeper.sessionTimeout" is 10; give milliseconds \(from 1000/],
    [{ servers: 'a', root: 'locks' }, /"zookeeper.root" is "locks"; give a path/],
    [{ servers: 'a', root: '/zookeeper/x' }, /"zookeeper.root"/],
    [{ servers: 'a', firstToken: -1 }, /"zookeeper.firstToken" is -1; give a whole number/],
    [{ servers: 'a', auth: { user: 'shop' } }, /"zookeeper.auth.password" is missing/],
    [{ servers: 'a', auth: { user: 'a:b', password: 'geheim' } }, /"zookeeper.auth.user" is "a:b"/],
    [{ servers: 'a', host: 'b' }, /Unknown option "zookeeper.host"/],
  ])('refuses %j and says what to give', (options, message) => {
    const make = () => zookeeper(options as ZooKeeperOptions);
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(message);
    expect(make).not.toThrow(/geheim/);
  });

  it('opens no connection before the first use', () => {
    expect(zookeeper('zk1,zk2:2182/app').traits.lease).toBe('session');
  });
});
