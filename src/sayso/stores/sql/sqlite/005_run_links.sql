-- What ties the rows of a run to each other, so that an altered one is found before anything goes on.
ALTER TABLE run ADD COLUMN link TEXT;   -- digest of the row and of the newest step's link; null if older than this
ALTER TABLE step ADD COLUMN link TEXT;  -- digest of the row and of the link of the step before; null if older than this
