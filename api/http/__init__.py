"""The HTTP layer: middleware, authentication, errors, parsing of requests, response schemas."""
