"""What a process reads from its environment."""

from pathlib import Path

import pytest

from oncefence.activities.egress_proxy import EgressProxy
from oncefence.app.config import Settings
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.limits import Limits

PASSWORD = "correct-horse"
SECRETS = {
    "ONCEFENCE_DATABASE_URL": f"postgresql://oncefence_app:{PASSWORD}@db:5432/oncefence",
    "ONCEFENCE_MIGRATOR_URL": f"postgresql://oncefence_migrator:{PASSWORD}@db:5432/oncefence",
    "ONCEFENCE_CREDENTIAL": PASSWORD,
    "ONCEFENCE_OPERATOR_TOKEN": PASSWORD,
}


def test_an_empty_environment_gives_the_defaults() -> None:
    """Whatever is not asked for need not be set; empty counts as unset."""
    settings = Settings.from_environment({"ONCEFENCE_LISTEN": "", "PATH": "/bin"})

    assert settings.limits == Limits()
    assert (settings.temporal_namespace, settings.task_queue) == ("default", "oncefence")
    assert (settings.listen_host, settings.listen_port) == ("127.0.0.1", 8080)
    assert settings.pack_folders == ()


def test_everything_can_be_set() -> None:
    """Each name reaches the property that the program reads."""
    settings = Settings.from_environment(
        SECRETS
        | {
            "ONCEFENCE_TEMPORAL_ADDRESS": "temporal:7233",
            "ONCEFENCE_TEMPORAL_NAMESPACE": "prod",
            "ONCEFENCE_TASK_QUEUE": "queue",
            "ONCEFENCE_KEY_FILE": "keys.json",
            "ONCEFENCE_TIME_SCALE": "0.01",
            "ONCEFENCE_ATTEMPTS_MAX": "3",
            "ONCEFENCE_ADMISSION_WINDOW": "4",
            "ONCEFENCE_LISTEN": "[::1]:0",
            "ONCEFENCE_PACK_FOLDERS": "packs:more packs:",
            "ONCEFENCE_EGRESS_PROXY": "proxy.internal:3128",
            "ONCEFENCE_URL": "http://127.0.0.1:8080/",
            "ONCEFENCE_DOORS": "http://127.0.0.1:8081/",
        }
    )

    assert settings.database_url == SECRETS["ONCEFENCE_DATABASE_URL"]
    assert settings.migrator_url == SECRETS["ONCEFENCE_MIGRATOR_URL"]
    assert settings.credential == PASSWORD
    assert settings.temporal_address == "temporal:7233"
    assert (settings.temporal_namespace, settings.task_queue) == ("prod", "queue")
    assert settings.key_file == Path("keys.json")
    assert settings.limits == Limits(time_scale=0.01, attempts_max=3, admission_window=4)
    assert (settings.listen_host, settings.listen_port) == ("::1", 0)
    assert settings.pack_folders == (Path("packs"), Path("more packs"))
    assert settings.egress_proxy == EgressProxy(host="proxy.internal", port=3128)
    assert settings.url == "http://127.0.0.1:8080"
    assert settings.doors == "http://127.0.0.1:8081"
    assert settings.operator_token.reveal() == PASSWORD


def test_no_secret_shows() -> None:
    """Settings end up in logs and tracebacks; passwords must not."""
    settings = Settings.from_environment(SECRETS)

    shown = [repr(settings), str(settings), str(settings.model_dump())]
    assert PASSWORD not in "".join([*shown, repr(settings.operator_token)])


@pytest.mark.parametrize(
    "name",
    [
        "database_url",
        "migrator_url",
        "temporal_address",
        "key_file",
        "url",
        "credential",
        "doors",
        "operator_token",
    ],
)
def test_what_is_needed_and_not_set_says_how_to_set_it(name: str) -> None:
    """One sentence that names the setting and leads on."""
    settings = Settings.from_environment({})

    with pytest.raises(ConfigurationRefused) as refusal:
        getattr(settings, name)

    assert refusal.value.setting == f"ONCEFENCE_{name.upper()}"
    assert refusal.value.reason == "this is not set"
    assert refusal.value.remedy.startswith(("Set it to", "Make one"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ONCEFENCE_TIME_SCALE", "0"),
        ("ONCEFENCE_TIME_SCALE", "1.5"),
        ("ONCEFENCE_TIME_SCALE", "nan"),
        ("ONCEFENCE_TIME_SCALE", "fast"),
        ("ONCEFENCE_ATTEMPTS_MAX", "0"),
        ("ONCEFENCE_ADMISSION_WINDOW", "0"),
        ("ONCEFENCE_ATTEMPTS_MAX", "many"),
        ("ONCEFENCE_LISTEN", "8080"),
        ("ONCEFENCE_LISTEN", "127.0.0.1:http"),
        ("ONCEFENCE_LISTEN", "127.0.0.1:65536"),
        ("ONCEFENCE_LISTEN", ":8080"),
        ("ONCEFENCE_TEMPORAL_ADDRESS", "http://temporal:7233"),
        ("ONCEFENCE_TEMPORAL_ADDRESS", "temporal:0"),
        ("ONCEFENCE_TEMPORAL_ADDRESS", "temporal"),
        ("ONCEFENCE_URL", "127.0.0.1:8080"),
        ("ONCEFENCE_DOORS", "127.0.0.1:8080"),
    ],
)
def test_a_wrong_value_is_refused_at_once(name: str, value: str) -> None:
    """A process that starts with half an idea of its settings fails later and worse."""
    with pytest.raises(ConfigurationRefused) as refusal:
        Settings.from_environment({name: value})

    assert refusal.value.setting == name


def test_a_refusal_does_not_repeat_the_value() -> None:
    """A secret that was put into the wrong setting must not come out of the message."""
    with pytest.raises(ConfigurationRefused) as refusal:
        Settings.from_environment({"ONCEFENCE_URL": SECRETS["ONCEFENCE_DATABASE_URL"]})

    assert PASSWORD not in str(refusal.value) + repr(refusal.value)


def test_a_misspelt_name_is_refused_with_the_right_one() -> None:
    """A setting that nobody reads is a setting that does not hold."""
    with pytest.raises(ConfigurationRefused, match="Did you mean ONCEFENCE_TASK_QUEUE"):
        Settings.from_environment({"ONCEFENCE_TASKQUEUE": "mine"})


def test_an_unknown_name_is_refused_with_the_list() -> None:
    """The message is the documentation."""
    with pytest.raises(ConfigurationRefused, match="ONCEFENCE_KEY_FILE"):
        Settings.from_environment({"ONCEFENCE_COLOUR": "red"})


@pytest.mark.parametrize(
    "value", ["proxy", "http://proxy:3128", "user:correct-horse@proxy:3128", "proxy:0"]
)
def test_a_proxy_is_a_host_and_a_port(value: str) -> None:
    """Credentials of a proxy would stand in an environment for nothing: none are ever sent."""
    with pytest.raises(ConfigurationRefused, match="give host:port") as refused:
        Settings.from_environment({"ONCEFENCE_EGRESS_PROXY": value})

    assert refused.value.setting == "ONCEFENCE_EGRESS_PROXY"
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "http://127.0.0.1:8080"),
        ({"ONCEFENCE_LISTEN": "[::1]:9"}, "http://[::1]:9"),
        ({"ONCEFENCE_LISTEN": "0.0.0.0:8080"}, None),
        ({"ONCEFENCE_PUBLIC_URL": "https://doors.example.com/x/"}, "https://doors.example.com/x"),
        ({"ONCEFENCE_PUBLIC_URL": "http://localhost:8081"}, "http://localhost:8081"),
    ],
)
def test_browsers_reach_the_doors_where_it_says(given: dict[str, str], found: str | None) -> None:
    """Unset, only doors of this machine are where they listen."""
    assert Settings.from_environment(given).public_url == found


@pytest.mark.parametrize(
    "value",
    [
        "http://doors.example.com",
        "doors.example.com",
        "https://",
        "https://[",
        "https://doors.example.com/?a=b",
        "https://ada@doors.example.com",
    ],
)
def test_a_browser_comes_back_over_tls(value: str) -> None:
    """What it brings is worth an account."""
    with pytest.raises(ConfigurationRefused) as refused:
        Settings.from_environment({"ONCEFENCE_PUBLIC_URL": value})

    assert refused.value.setting == "ONCEFENCE_PUBLIC_URL"


def test_no_proxy_of_the_environment_is_taken() -> None:
    """What other programs read there is not meant for the calls that must be counted (C240)."""
    settings = Settings.from_environment(
        dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    )

    assert settings.egress_proxy is None
