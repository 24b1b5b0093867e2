import type { IncomingMessage, ServerResponse } from 'node:http';

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self' data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/**
 * Refuses what another site makes a browser on this machine send. A name of that site may resolve to 127.0.0.1, so the
 * host is checked, too.
 */
export function ownOriginOnly(request: IncomingMessage, response: ServerResponse, next: () => void): void {
  const port = request.socket.localPort;
  const hosts = [`127.0.0.1:${port}`, `localhost:${port}`];
  const { host = '', origin, 'sec-fetch-site': site } = request.headers;
  if (!hosts.includes(host)) return refuse(response, `This page is http://${hosts[0]}/, not ${host}`);
  const changes = request.method !== 'GET' && request.method !== 'HEAD';
  if (changes && origin !== undefined && origin !== `http://${host}`) return refuse(response, foreign(origin));
  if (changes && site !== undefined && site !== 'same-origin') return refuse(response, foreign(`a ${site} page`));
  response.setHeader('Content-Security-Policy', POLICY);
  response.setHeader('X-Content-Type-Options', 'nosniff');
  response.setHeader('Referrer-Policy', 'no-referrer');
  response.setHeader('Cache-Control', 'no-cache');
  next();
}

function foreign(sender: string): string {
  return `Only the page itself can change something; this request comes from ${sender}`;
}

function refuse(response: ServerResponse, message: string): void {
  response.writeHead(403, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify({ statusCode: 403, code: 'FOREIGN_ORIGIN', message }));
}
