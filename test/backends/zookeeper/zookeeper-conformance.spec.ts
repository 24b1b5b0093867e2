import { conforms } from '../../conformance/conforms.js';
import { zookeeperWorld } from './zookeeper-world.js';

conforms('zookeeper', zookeeperWorld);
