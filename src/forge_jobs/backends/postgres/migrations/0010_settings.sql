-- Small named values: first the key and the sessions of Mission Control. Versions rise with every put.
CREATE TABLE forge.settings (
    namespace text   COLLATE "C" NOT NULL,
    name      text   COLLATE "C" NOT NULL,
    value     bytea  NOT NULL,
    version   bigint NOT NULL,
    until     bigint,
    PRIMARY KEY (namespace, name)
);

CREATE INDEX settings_ending ON forge.settings (until) WHERE until IS NOT NULL;
