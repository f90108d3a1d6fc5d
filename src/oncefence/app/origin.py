"""The origin of a provider, as a person names it."""

from oncefence.activities.target import TargetPolicy, TargetRefusal, check_target
from oncefence.domain.errors import ConfigurationRefused


def check_origin(url: str, *, is_local: bool, setting: str = "--base-url") -> str:
    """
    The URL as it is stored, by the same rule that every request is checked with.

    Raises:
        ConfigurationRefused: No request could ever be sent there.
    """
    checked = check_target(url, "/", TargetPolicy(is_local=is_local))
    if isinstance(checked, TargetRefusal):
        reason, remedy = {
            TargetRefusal.PLAIN_HTTP: (
                "plain http is for local bindings",
                "Give an https:// URL, or say --local",
            )
        }.get(
            checked,
            ("this is no origin", "Give scheme, host and perhaps port, and nothing after them"),
        )
        raise ConfigurationRefused(setting=setting, reason=reason, remedy=remedy)
    return url.rstrip("/")
