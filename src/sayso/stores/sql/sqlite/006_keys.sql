-- The occasion key and the effect of a request, as digests: the texts stand in `asked`, which may be sealed.

ALTER TABLE request ADD COLUMN key_digest TEXT;     -- of the run and the key
ALTER TABLE request ADD COLUMN effect_digest TEXT;

-- A key is asked once in its run, for ever.
CREATE UNIQUE INDEX request_key ON request (key_digest) WHERE key_digest IS NOT NULL;
CREATE INDEX request_effect ON request (effect_digest, n) WHERE effect_digest IS NOT NULL;
