-- compatibility: additive
-- The machine a process runs on and the name of its liveness socket (liveness_socket.py); NULL: not known.
ALTER TABLE forge.processes ADD COLUMN machine text COLLATE "C";
