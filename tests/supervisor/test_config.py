"""`stateous.yaml`, environment and flags: who wins, and what a fault says (A-01 … A-03)."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateous_supervisor.agent import config
from stateous_supervisor.agent.config import Config
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.keys import KEYS, ROUTINE_KEYS, TASKS_MAX
from stateous_supervisor.agent.yaml_file import Node, read

EXAMPLE = Path(__file__).parents[2] / "stateous.yaml.example"
URL = "url: http://cp:8080\n"


def load(
    folder: Path, text: str | None = URL, flags: dict[str, str] | None = None, **environment: str
) -> Config:
    if text is not None:
        (folder / "stateous.yaml").write_text(text)
    return config.load(folder, flags=flags, environment=environment)


def fault(folder: Path, text: str, **more: object) -> str:
    with pytest.raises(Fault) as caught:
        load(folder, text, **more)  # type: ignore[arg-type]
    assert caught.value.exit_code is Exit.CONFIG
    return caught.value.sentence.replace(str(folder), "F")


def test_only_the_url_must_be_given_a_01(tmp_path: Path) -> None:
    found = load(tmp_path)

    assert (found.url, found.tasks, found.drain_timeout_s, found.log_format) == (
        "http://cp:8080",
        4,
        None,
        "auto",
    )


def test_a_flag_beats_the_environment_and_that_the_file_a_02(tmp_path: Path) -> None:
    found = load(
        tmp_path, URL + "tasks: 1\nname: file\n", {"tasks": "3"}, STATEOUS_TASKS="2", STATEOUS_NAME="env"
    )

    assert (found.tasks, found.name) == (3, "env")
    assert [found.settings[key].origin for key in ("tasks", "name", "url")] == [
        "flag --tasks",
        "environment STATEOUS_NAME",
        "stateous.yaml:1",
    ]


NAMES = {
    "localhost": "localhost",
    "h" * 64: "h" * 64,
    "f" * 128: "f" * 128,
    "bücher-שלום": "bücher-שלום",
    "": "supervisor",
}


@pytest.mark.parametrize(("host", "name"), NAMES.items())
def test_without_a_name_it_is_the_host_name_whole_bh_033(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, name: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)

    assert load(tmp_path).name == name


@pytest.mark.parametrize("host", ["f" * 253, "two\nlines", "not-utf8-\udcff"])
def test_a_host_name_that_is_no_name_is_refused_and_never_cut_bh_033(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)

    sentence = fault(tmp_path, URL)

    assert sentence.startswith(f"the host name {host!r:.300} is no name for a supervisor")
    assert "must be text of 1 to 128 printable characters; give one as 'name'" in sentence
    assert load(tmp_path, flags={"name": "given"}).name == "given"


def test_a_value_nobody_gave_is_the_default_a_02(tmp_path: Path) -> None:
    assert load(tmp_path).settings["log.level"].origin == "default"


def test_a_nested_key_has_a_variable_too_a_02(tmp_path: Path) -> None:
    assert load(tmp_path, STATEOUS_LOG_LEVEL="debug").log_level == "debug"


def test_without_a_file_the_flag_is_enough(tmp_path: Path) -> None:
    assert load(tmp_path, None, {"url": "http://cp"}).url == "http://cp"


def test_without_a_url_nothing_starts(tmp_path: Path) -> None:
    assert (
        fault(tmp_path, "tasks: 4\n")
        == "F/stateous.yaml: 'url' is missing; it must say where the control plane is"
    )


def test_keys_of_a_state_are_its_own(tmp_path: Path) -> None:
    text = URL + "routines:\n  coding:\n    timeout: 10m\n    tasks: 2\n"

    found = load(tmp_path, text).routines["coding"]

    assert (found.timeout_s, found.tasks, found.isolation) == (600.0, 2, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "url: http://cp\ntasks: 0\n",
            "F/stateous.yaml:2: 'tasks' is 0; it must be a whole number from 1 to 100000",
        ),
        (
            "url: http://cp\ntasks: on\n",
            "F/stateous.yaml:2: 'tasks' is 'on'; it must be a whole number from 1 to 100000",
        ),
        ("url: http://cp\ntaks: 4\n", "F/stateous.yaml:2: 'taks' is not a key; did you mean 'tasks'?"),
        ("url: ftp://cp\n", "F/stateous.yaml:1: 'url' is 'ftp://cp'; it must be a URL such as "),
        ("url: http://u:p@cp\n", "a name or password in it is not allowed"),
        ("url: http://cp?x=1\n", "it must be a URL such as "),
        ("url: [a]\n", "F/stateous.yaml:1: 'url' is a list; it must be a URL such as "),
        (
            "url: http://cp\nurl: http://b\n",
            "F/stateous.yaml:2: the key 'url' stands here again, first in line 1",
        ),
        ("url: &a http://cp\n", "F/stateous.yaml:1: the anchor &a is not allowed"),
        ("url: http://cp\nname: !!str x\n", "F/stateous.yaml:2: the tag "),
        ("url: http://cp\nname: *a\n", "F/stateous.yaml:2: the alias *a is not allowed"),
        ("url: http://cp\n---\nurl: http://b\n", "F/stateous.yaml:2: a second document starts here"),
        ("url: http://cp\n  x: [\n", "F/stateous.yaml:2: this is not YAML"),
        ("- url\n", "F/stateous.yaml:1: the file is a list; it must be a mapping of keys"),
        ("url: http://cp\nlog: 5\n", "F/stateous.yaml:2: 'log' is 5; it must be a mapping of keys"),
        (
            "url: http://cp\nlog:\n  levl: info\n",
            "F/stateous.yaml:3: 'log.levl' is not a key; did you mean 'log.level'?",
        ),
        (
            "url: http://cp\nlog:\n  level: loud\n",
            "'log.level' is 'loud'; it must be one of debug, info, warning, error",
        ),
        (
            "url: http://cp\ndrain_timeout: 10\n",
            "'drain_timeout' is 10; it must be a duration such as 30s, 10m",
        ),
        (
            "url: http://cp\nroutines:\n  a:\n    fenc: true\n",
            "'routines.a.fenc' is not a key; did you mean 'fence'?",
        ),
        (
            "url: http://cp\nroutines:\n  a:\n    fence: maybe\n",
            "'routines.a.fence' is 'maybe'; it must be true or false",
        ),
        ("url: http://cp\nmetrics:\n  listen: x\n", "'metrics.listen' is 'x'; it must be PORT or HOST:PORT"),
        (
            "url: http://cp\nlog: {level: info}\nlog.level: debug\n",
            "stateous.yaml:3: the key 'log.level' stands here again, first in stateous.yaml:2",
        ),
    ],
)
def test_a_fault_names_line_key_found_and_allowed_a_03(tmp_path: Path, text: str, sentence: str) -> None:
    assert sentence in fault(tmp_path, text)


def test_a_file_that_is_not_utf_8_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "stateous.yaml").write_bytes(b"url: http://cp\nname: \xff\n")

    with pytest.raises(Fault, match="is not UTF-8"):
        config.load(tmp_path, environment={})


def test_a_bad_environment_variable_is_named(tmp_path: Path) -> None:
    assert fault(tmp_path, URL, STATEOUS_TASKS="many").startswith(
        "environment: 'STATEOUS_TASKS' is 'many'; it must be"
    )


def test_a_bad_flag_is_a_fault_of_the_command_line_a_03(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="'--drain-timeout' is 'soon'") as caught:
        load(tmp_path, URL, {"drain_timeout": "soon"})

    assert caught.value.exit_code is Exit.USAGE


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("~", None),
        ("010", 10),
        ("1.5", 1.5),
        ("'4'", "4"),
        ("0x1F", 31),
        ("2020-01-01", "2020-01-01"),
        ("1_000", "1_000"),
    ],
)
def test_scalars_are_those_of_yaml_1_2_a_03(text: str, value: object) -> None:
    assert read(f"a: {text}").value == {"a": Node(value, 1)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ('tasks: "4"', f"'tasks' is '4'; it must be a whole number from 1 to {TASKS_MAX}, without quotes"),
        (
            "routines: {coding: {memory_mb: '64'}}",
            "'routines.coding.memory_mb' is '64'; it must be a whole number from 16 to 1048576, without quotes",
        ),
        (
            "routines: {coding: {fence: 'true'}}",
            "'routines.coding.fence' is 'true'; it must be true or false, without quotes",
        ),
    ],
)
def test_a_quoted_scalar_is_a_text_and_no_number_a_03(tmp_path: Path, keys: str, sentence: str) -> None:
    assert fault(tmp_path, URL + keys) == f"F/stateous.yaml:2: {sentence}"


def test_digits_count_where_all_is_text_a_03(tmp_path: Path) -> None:
    assert load(tmp_path, STATEOUS_TASKS="7").tasks == 7
    assert load(tmp_path, flags={"tasks": "9"}).tasks == 9


def test_a_bare_port_for_metrics_is_loopback(tmp_path: Path) -> None:
    assert (
        load(tmp_path, URL + "metrics: {listen: 9100}\n").settings["metrics.listen"].value == "127.0.0.1:9100"
    )


def test_paths_are_relative_to_the_folder(tmp_path: Path) -> None:
    found = load(tmp_path, URL + "python: .venv/bin/python\nca_file: ca.pem\nstate_dir: s\n")

    assert (found.python, found.ca_file, found.state_dir) == (
        str(tmp_path / ".venv/bin/python"),
        tmp_path / "ca.pem",
        tmp_path / "s",
    )


def test_a_trailing_slash_of_the_url_is_dropped_and_a_prefix_stays(tmp_path: Path) -> None:
    assert load(tmp_path, "url: https://h.example/p/\n").url == "https://h.example/p"


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="no such file or directory") as caught:
        config.load(tmp_path / "none", environment={})

    assert caught.value.exit_code is Exit.CONFIG


def test_a_proxys_password_is_masked_a_02() -> None:
    assert config.masked("proxy", "http://user:secret@proxy:3128") == "http://***@proxy:3128"


@pytest.mark.parametrize("text", ["1s", "90s", "30m", "2h", "36h", "7d", "3650d"])
def test_a_duration_is_shown_as_it_may_be_written_a_02(tmp_path: Path, text: str) -> None:
    setting = load(tmp_path, URL + f"drain_timeout: {text}\n").settings["drain_timeout"]

    assert config.masked("drain_timeout", setting.value) == text


def test_the_example_shows_every_key_with_its_default_and_one_line_a_01(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    shown = load(tmp_path, text)

    for key in KEYS.values():
        assert f"{key.name.rsplit('.')[-1]}: {key.example}" in text
        assert f"# {key.about}\n" in text
        assert shown.settings[key.name].value is not None or key.default is None
        if key.default is not None:
            assert shown.settings[key.name].value == key.default
    for key in ROUTINE_KEYS.values():
        assert f"    {key.name}: {key.example}" in text
        assert f"# {key.about}\n" in text
        assert shown.settings[f"routines.coding.{key.name}"].value == key.default


def test_the_page_shows_every_key_and_no_other() -> None:
    page = (EXAMPLE.parent / "docs/reference/configuration.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    keys = [*KEYS.values(), *ROUTINE_KEYS.values()]
    shown = [f"| `{k.name}` | {'' if k.name == 'url' else f'`{k.example}`'} | {k.about} |" for k in keys]
    assert rows == shown


def test_the_example_shows_no_key_that_does_not_exist(tmp_path: Path) -> None:
    shown = load(tmp_path, EXAMPLE.read_text()).settings

    routine_keys = {f"routines.coding.{name}" for name in ROUTINE_KEYS}
    assert set(shown) == set(KEYS) | routine_keys


@pytest.mark.parametrize(
    "proxy", ["ftp://me:canary@p:1", "http://me:canary@", "me:canary@p:1", "socks5://me:canary@p:1"]
)
def test_a_proxy_that_is_refused_keeps_its_password_bh_037(tmp_path: Path, proxy: str) -> None:
    with pytest.raises(Fault) as caught:
        load(tmp_path, URL + f"proxy: {proxy}\n")

    assert "must be the URL of an http or https proxy" in caught.value.sentence
    assert "canary" not in caught.value.sentence


def test_a_list_without_a_meaning_is_refused_a_49(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"stateous.yaml:2: 'no_proxy' is .*'10.0.0.0/99' is none"):
        load(tmp_path, URL + "no_proxy: localhost,10.0.0.0/99\n")


def test_a_key_without_its_certificate_is_refused_a_49(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="'client_key' is set and 'client_cert' is not"):
        load(tmp_path, URL + "client_key: key.pem\n")
