export { memory } from './memory-lock-backend.js';
