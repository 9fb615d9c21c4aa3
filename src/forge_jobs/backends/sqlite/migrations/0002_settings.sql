-- compatibility: additive
-- Small named values: first the key and the sessions of Mission Control. Versions rise with every put.
CREATE TABLE forge_settings (
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    value     BLOB    NOT NULL,
    version   INTEGER NOT NULL,
    until     INTEGER,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

CREATE INDEX forge_settings_ending ON forge_settings (until) WHERE until IS NOT NULL;
