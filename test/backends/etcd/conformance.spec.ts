import { conforms } from '../../conformance/conforms.js';
import { etcdWorld } from '../../conformance/worlds/etcd-world.js';

conforms('etcd', etcdWorld);
