import { OutgoingMessage } from 'node:http';
import type { HttpResponse } from '../../lib/http/http-response.js';
import { headersOf, headersSince } from '../../lib/http/kept-response.js';

it('takes a header for one of the handler that adds to the list which a middleware has set', () => {
  const response = new OutgoingMessage();
  response.setHeader('Link', ['</styles>; rel=preload']);
  response.setHeader('Vary', ['Accept']);
  const before = headersOf(response as unknown as HttpResponse);
  response.appendHeader('Link', '</orders/1>; rel=self');
  expect(headersSince(before, response as unknown as HttpResponse)).toEqual(['link']);
});
