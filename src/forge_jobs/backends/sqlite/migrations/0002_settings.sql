-- compatibility: additive
-- Small named values, such as the key and the sessions of Mission Control. Every put raises the
-- version. until is the expiry.
CREATE TABLE forge_settings (
    namespace TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    value     BLOB    NOT NULL,
    version   INTEGER NOT NULL,
    until     INTEGER,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

CREATE INDEX forge_settings_expiry ON forge_settings (until) WHERE until IS NOT NULL;
