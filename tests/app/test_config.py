"""Settings: environment over forge.toml over defaults, and errors that name file, key, remedy."""

from pathlib import Path

import pytest

from forge_jobs import BadConfig, config


@pytest.fixture
def folder_below(tmp_path: Path) -> Path:
    folder = tmp_path / "a" / "b" / "c" / "d" / "e"
    folder.mkdir(parents=True)
    return folder


def load(folder: Path, **environment: str) -> config.Settings:
    home = folder.anchor and str(folder / "no-config-home")
    return config.load({"XDG_CONFIG_HOME": home, **environment}, folder=folder)


def write(folder: Path, text: str) -> Path:
    path = folder / "forge.toml"
    path.write_text(text)
    return path


def test_without_anything_a_file_in_the_working_directory(folder_below: Path) -> None:
    settings = load(folder_below)
    assert (settings.url, settings.url_from) == ("sqlite:///forge.db", "default")
    assert settings.queues == {}


def test_the_environment_wins_over_the_file(folder_below: Path) -> None:
    path = write(folder_below, 'url = "memory://file"\n[queues]\nmail = 3\n')
    assert load(folder_below).url == "memory://file"
    assert load(folder_below).url_from == f"url in {path}"
    assert load(folder_below, DATABASE_URL="memory://db").url == "memory://db"
    both = load(folder_below, DATABASE_URL="memory://db", FORGE_URL="memory://forge")
    assert (both.url, both.url_from) == ("memory://forge", "FORGE_URL")
    assert load(folder_below).queues == {"mail": 3}
    assert load(folder_below, FORGE_QUEUES="video:2").queues == {"video": 2}


@pytest.mark.parametrize("url", ["mysql://h/db", "postgresql+asyncpg://h/db", "", "nonsense"])
def test_a_database_url_of_somebody_else_is_left_alone(folder_below: Path, url: str) -> None:
    assert load(folder_below, DATABASE_URL=url).url_from == "default"


@pytest.mark.parametrize("url", ["sqlite:///x.db", "postgres://h/db", "POSTGRESQL://h/db"])
def test_a_database_url_we_know_is_used(folder_below: Path, url: str) -> None:
    assert load(folder_below, DATABASE_URL=url).url == url


def test_the_file_is_searched_four_levels_up(folder_below: Path) -> None:
    write(folder_below.parents[4], 'url = "memory://five"')
    assert load(folder_below).url_from == "default"
    write(folder_below.parents[3], 'url = "memory://four"')
    assert load(folder_below).url == "memory://four"
    write(folder_below.parent, 'url = "memory://one"')
    assert load(folder_below).url == "memory://one"
    write(folder_below, 'url = "memory://here"')
    assert load(folder_below).url == "memory://here"


def test_the_users_own_file_comes_last(folder_below: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "forge").mkdir(parents=True)
    write(home / "forge", 'url = "memory://mine"')
    assert load(folder_below, XDG_CONFIG_HOME=str(home)).url == "memory://mine"
    write(folder_below, 'url = "memory://project"')
    assert load(folder_below, XDG_CONFIG_HOME=str(home)).url == "memory://project"


def test_a_relative_database_path_starts_at_the_configuration_file(folder_below: Path) -> None:
    top = folder_below.parents[2]
    write(top, 'url = "sqlite:///data/jobs.db?synchronous=normal"')
    assert load(folder_below).url == f"sqlite:///{top.as_posix()}/data/jobs.db?synchronous=normal"
    write(top, 'url = "sqlite:////var/lib/jobs.db"')
    assert load(folder_below).url == "sqlite:////var/lib/jobs.db"


def test_the_password_comes_from_the_environment(folder_below: Path) -> None:
    path = write(folder_below, 'url = "postgresql://ada@host:5433/db"\npassword_env = "DB_SECRET"')
    assert load(folder_below, DB_SECRET="p@ss/w").url == "postgresql://ada:p%40ss%2Fw@host:5433/db"
    given = load(folder_below, DB_SECRET="x", FORGE_URL="postgresql://bob:own@host/db")
    assert given.url == "postgresql://bob:own@host/db"
    assert load(folder_below, FORGE_URL="sqlite:///a.db").url == "sqlite:///a.db"
    with pytest.raises(BadConfig) as caught:
        load(folder_below)
    for part in (str(path), "password_env", "'DB_SECRET'", "not set"):
        assert part in str(caught.value)
    with pytest.raises(BadConfig, match="names no user"):
        load(folder_below, DB_SECRET="x", FORGE_URL="postgresql://host/db")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("url = ", ["is not valid TOML"]),
        ("url = 5", ["url must be text"]),
        ('url = ""', ["url must be text"]),
        ("ulr = 'x'", ["unknown key 'ulr'", "known keys are url, password_env, queues"]),
        ("queues = 5", ["queues must be a table"]),
        ("[queues]\nmail = 'many'", ["queues: queue 'mail'", "slots 'many'", "whole number"]),
        ("[queues]\nmail = -1", ["queue 'mail'", "slots -1"]),
        ("[queues]\nmail = true", ["slots True"]),
        ("[queues]\n'a b' = 1", ["queue 'a b' is not allowed"]),
        ("[queues.mail]\nslot = 1", ["queues.mail", "unknown key 'slot'", "slots"]),
        ("schedules = 5", ["schedules must be a table"]),
        ("[schedules]\na = 5", ["schedules.a must be a table"]),
        ("[schedules.a]\nkind = 'k'", ["schedules.a", "cron is missing"]),
        ("[schedules.a]\ncron = '@daily'", ["schedules.a", "kind is missing"]),
        ("[schedules.a]\ncron = 'x'\nkind = 'k'", ["schedules.a", "has 1 fields"]),
        ("[schedules.a]\ncron = '@daily'\nkind = 'k'\nzone = 'x'", ["unknown key 'zone'", "tz"]),
        ("[schedules.a]\ncron = '@daily'\nkind = 'k'\ntz = 'x'", ["schedules.a", "time zone"]),
    ],
)
def test_errors_in_the_file_name_file_key_and_remedy(
    folder_below: Path, text: str, parts: list[str]
) -> None:
    path = write(folder_below, text)
    with pytest.raises(BadConfig) as caught:
        load(folder_below)
    for part in [str(path), *parts]:
        assert part in str(caught.value)


def test_schedules_in_the_file(folder_below: Path) -> None:
    path = write(
        folder_below,
        "[schedules.report]\ncron = '0 9 * * *'\nkind = 'send'\ntz = 'Europe/Paris'\n"
        "payload = {to = 'a'}\njitter = '5m'\nmissed = 'all'\nqueue = 'mail'\n",
    )
    (said,) = config.read_file(path).schedules
    assert (said.name, said.expression, said.kind) == ("report", "0 9 * * *", "send")
    assert (said.zone, said.payload, said.jitter_s) == ("Europe/Paris", b'{"to":"a"}', 300)
    assert (said.missed, said.overlap, said.queue) == ("all", "allow", "mail")


def test_a_file_that_cannot_be_read_as_text(folder_below: Path) -> None:
    (folder_below / "forge.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadConfig, match="not valid TOML"):
        load(folder_below)


def test_queue_tables(folder_below: Path) -> None:
    write(folder_below, "[queues]\nmail = 20\nvideo = { slots = 2 }\n[queues.plain]\n")
    assert load(folder_below).queues == {"mail": 20, "video": 2, "plain": 10}


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("", {}),
        ("mail:20,video", {"mail": 20, "video": 10}),
        (" mail:20 , video ,", {"mail": 20, "video": 10}),
        ("a.b-c_1:0", {"a.b-c_1": 0}),
    ],
)
def test_forge_queues(text: str, queues: dict[str, int]) -> None:
    assert config.queues_from_env({"FORGE_QUEUES": text}) == queues


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mail:", "has no number of slots after ':': write 'mail:20'"),
        ("mail:ten", "'mail:ten' has no number"),
        ("mail:-1", "'mail:-1'"),
        ("mail:1.5", "'mail:1.5'"),
        ("mail:9999999", "from 0 to 100,000"),
        ("mail:2,mail:3", "queue 'mail' is given 2 and 3 slots; name it once"),
        (":5", "queue '' is not allowed"),
        ("a b", "queue 'a b' is not allowed"),
    ],
)
def test_bad_forge_queues(text: str, complaint: str) -> None:
    with pytest.raises(BadConfig) as caught:
        config.queues_from_env({"FORGE_QUEUES": text})
    assert str(caught.value).startswith("FORGE_QUEUES: ")
    assert complaint in str(caught.value)


@pytest.mark.parametrize(("value", "on"), [("", True), ("1", True), ("no", False), ("0", False)])
def test_auto_migrate(value: str, on: bool) -> None:
    assert config.auto_migrate({"FORGE_AUTO_MIGRATE": value}) is on
    assert config.auto_migrate({}) is True


def test_a_switch_that_is_neither_on_nor_off() -> None:
    with pytest.raises(BadConfig, match=r"FORGE_AUTO_MIGRATE='maybe'.*use 1 or 0"):
        config.auto_migrate({"FORGE_AUTO_MIGRATE": "maybe"})


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("mail,mail", {"mail": 10}),
        ("mail,mail:3,mail", {"mail": 3}),
        ("mail:3,mail:3", {"mail": 3}),
        (" mail : 3 , video ,\n", {"mail": 3, "video": 10}),
        (" \t", {}),
    ],
)
def test_u15n_queues_are_read_without_blanks_and_may_be_named_twice(
    text: str, queues: dict[str, int]
) -> None:
    assert config.queues_from_env({"FORGE_QUEUES": text}) == queues


def test_u15n_names_of_workers_are_read_without_blanks() -> None:
    env = {"FORGE_WORKER_PREFIX": " web ", "FORGE_WORKER_VERSION": "\t", "FORGE_WORKER_ID": "a\n"}
    assert config.worker_prefix_from_env(env) == "web"
    assert config.worker_version_from_env(env) is None
    assert config.worker_id_from_env(env) == "a"
    assert config.health_host_from_env({"FORGE_HEALTH_HOST": " "}) == "127.0.0.1"
    assert config.load({"FORGE_URL": " memory:// "}).url == "memory://"


def test_names_of_workers() -> None:
    env = {"FORGE_WORKER_PREFIX": "web", "FORGE_WORKER_VERSION": "1.2", "FORGE_WORKER_ID": ""}
    assert config.worker_prefix_from_env(env) == "web"
    assert config.worker_version_from_env(env) == "1.2"
    assert config.worker_id_from_env(env) is None
