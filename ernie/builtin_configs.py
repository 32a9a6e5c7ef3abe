"""The configurations that ship with the library: in its checkout, or installed by its wheel."""

from __future__ import annotations

from pathlib import Path

from ernie.errors import UserError, nearest

_DISTRIBUTION = "ernie-continual"  # setup.cfg installs the folder as share/ernie-continual/configs


def configs() -> Path | None:
    """Return the folder `configs`, or None if neither a checkout nor an installed distribution has it."""
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "setup.cfg").is_file() and (checkout / "configs").is_dir():
        return checkout / "configs"
    from importlib import metadata  # takes 20 ms, and a checkout needs none

    try:
        files = metadata.files(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:  # the metadata has the installed paths, also under --user, --prefix and --target
        for folder in Path(str(file.locate())).parents if file.suffix == ".yaml" else ():
            if folder.name == "configs" and folder.parent.name == _DISTRIBUTION:
                return folder.resolve()
    return None


def find_config(path: str | Path, part: str) -> Path:
    """Return the file at `path`, or else the shipped configuration of that name in the folder `part`.

    `glue/sst2` is `configs/finetune/glue/sst2.yaml` for the part "finetune"; the part "" has no configurations.  Raises
    UserError if there is neither.
    """
    path = Path(path)
    if not part or path.exists() or path.suffix == ".yaml" or path.is_absolute():
        return path
    if found := shipped(path.as_posix(), part):
        return found
    raise UserError(
        f"{path}: there is no such file, and no configuration of that name comes with ernie."
        f"{nearest(path.as_posix(), names(part))}"
    )


def shipped(name: str, part: str) -> Path | None:
    """Return the shipped configuration of this name in the folder `part`, if there is one and `part` is not empty."""
    folder = configs() if part else None
    file = folder / part / f"{name}.yaml" if folder else None
    return file if file and file.is_file() else None


def names(part: str) -> list[str]:
    """Return the names of all shipped configurations in the folder `part`."""
    folder = configs()
    if folder is None:
        return []
    root = folder / part
    return sorted(file.relative_to(root).with_suffix("").as_posix() for file in root.rglob("*.yaml"))
