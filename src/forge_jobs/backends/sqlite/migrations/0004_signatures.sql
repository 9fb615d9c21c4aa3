-- compatibility: additive
-- What a process takes, by kind, as JSON (core.kind_signature.KindSignature); NULL for processes of
-- older versions.
ALTER TABLE forge_processes ADD COLUMN signatures TEXT;
