"""Configuration: how YAML is read, what error messages say, and that configurations survive a round trip."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ernie.config import ConfigError, build, differences, dump, from_dict, load, read, to_dict
from ernie.errors import UserError


@dataclass(frozen=True)
class Rate:
    peak: float = 1e-4
    decay: Literal["linear", "cosine"] = "linear"

    def __post_init__(self) -> None:
        if self.peak <= 0:
            raise UserError(f"peak: expected a rate above 0, found {self.peak}")


@dataclass(frozen=True)
class Shape:
    """Base of the variants below: the key, or `task:`, selects one."""

    variant_name: ClassVar[str] = ""

    @classmethod
    def variant(cls, key: str, given: dict[str, Any]) -> tuple[type[Shape], set[str]]:
        name = given.get("task", key)
        if name not in ("square", "circle"):
            raise UserError(f"no shape is called '{name}'")
        return {"square": Square, "circle": Circle}[name], {"task"}


@dataclass(frozen=True)
class Square(Shape):
    side: int = 1
    variant_name: ClassVar[str] = "square"


@dataclass(frozen=True)
class Circle(Shape):
    radius: float = 1.0
    variant_name: ClassVar[str] = "circle"


@dataclass(frozen=True)
class Config:
    corpus: Path
    seed: int = 0
    name: str = "run"
    quiet: bool = False
    rate: Rate = field(default_factory=Rate)
    stages: list[dict[str, int]] | None = None
    units: tuple[str, ...] = ("word",)
    pair: tuple[int, float] = (1, 2.0)
    either: int | list[int] = 1
    folder: Path | None = None
    shapes: dict[str, Shape] = field(default_factory=dict)


def write(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str, *overrides: str) -> list[str]:
    """The errors of a run.yaml, without its folder."""
    with pytest.raises(ConfigError) as caught:
        load(Config, write(folder, text), overrides)
    return [line.removeprefix(f"{folder}/") for line in caught.value.mistakes]


@dataclass(frozen=True)
class ThirdParty:
    """A class that raises a plain ValueError instead of this library's errors."""

    share: float = 0.1

    def __post_init__(self) -> None:
        if self.share < 0:
            raise ValueError("share must not be negative")


def test_a_plain_value_error_is_reported_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml:1: share must not be negative$"):
        load(ThirdParty, write(tmp_path, "share: -1"))


# ----------------------------------------------------------------------------------------- how YAML is read


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("5e-5", 5e-5),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("-0.25", -0.25),
        ("+7", 7),
        ("017", 17),
        ("08", 8),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("yes", "yes"),
        ("on", "on"),
        ("No", "No"),
        ("2020-01-31", "2020-01-31"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("0x1f", "0x1f"),
        ("'5e-5'", "5e-5"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_are_read_as_they_look(tmp_path: Path, written: str, expected: object) -> None:
    value = read(write(tmp_path, f"key: {written}")).get("key")
    assert value == expected
    assert type(value) is type(expected)


def test_an_empty_file_and_no_file_are_empty_configurations(tmp_path: Path) -> None:
    assert read(write(tmp_path, "# nothing\n")).plain() == {}
    assert read(None).plain() == {}


def test_an_empty_block_takes_its_defaults(tmp_path: Path) -> None:
    assert load(Config, write(tmp_path, "corpus: c\nrate:\n")).rate == Rate()


def test_an_integer_is_accepted_for_a_float(tmp_path: Path) -> None:
    config = load(Config, write(tmp_path, "corpus: c\nrate: {peak: 1}"))
    assert config.rate.peak == 1.0
    assert isinstance(config.rate.peak, float)


@pytest.mark.parametrize("written", ["0", "007", "1.50", "true", "False", "-3e2"])
def test_a_number_in_a_list_of_texts_is_kept_as_written(tmp_path: Path, written: str) -> None:
    (tmp_path / "run.yaml").write_text(f"corpus: c\nunits: [{written}, word]", encoding="utf-8")
    loaded = load(Config, tmp_path / "run.yaml")
    assert loaded.units == (written, "word")
    assert build(Config, from_dict({"corpus": "c", "units": [0, True]})).units == ("0", "true")


# -------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(("written", "meant"), [("1e5", 100_000), ("2.0", 2), ("-3e0", -3), ("4", 4)])
def test_a_whole_number_may_be_written_as_rates_are(written: str, meant: int, tmp_path: Path) -> None:
    config = load(Config, write(tmp_path, f"corpus: c\nseed: {written}"))
    assert config.seed == meant and type(config.seed) is int


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("corpus: c\nseed: 1e300", "run.yaml:2: seed: expected a whole number, found 1e+300"),
        ("corpus: c\nsede: 1", "run.yaml:2: sede: unknown key. Did you mean 'seed'?"),
        ("corpus: c\nrate:\n  epoch: 3", "run.yaml:3: rate.epoch: unknown key. Known: decay, peak."),
        ("seed: 1", "run.yaml:1: corpus: this key is required"),
        ("corpus: c\nseed: 1.5", "run.yaml:2: seed: expected a whole number, found 1.5"),
        ("corpus: c\nseed: true", "run.yaml:2: seed: expected a whole number, found true (quote it if you mean the wo"),
        ("corpus: c\nname: 3", "run.yaml:2: name: expected text, found 3"),
        ("corpus: c\nname: true", "run.yaml:2: name: expected text, found true (quote it if you mean the word)"),
        ("corpus: c\nquiet: yes", "run.yaml:2: quiet: expected true or false, found 'yes'"),
        ("corpus: c\nquiet: 1", "run.yaml:2: quiet: expected true or false, found 1"),
        ("corpus: 3", "run.yaml:1: corpus: expected a path, found 3"),
        ("corpus:", "run.yaml:1: corpus: expected a path, found nothing"),
        ("corpus: c\nrate: {peak: fast}", "run.yaml:2: rate.peak: expected a number, found 'fast'"),
        ("corpus: c\nrate: {peak: .inf}", "run.yaml:2: rate.peak: expected a finite number, found inf"),
        (f"corpus: c\nrate: {{peak: 1{'0' * 400}}}", "run.yaml:2: rate.peak: expected a finite number, found 1000"),
        ("corpus: c\nrate: {peak: 1e999}", "run.yaml:2: rate.peak: expected a finite number, found inf"),
        ("corpus: c\nrate: {decay: step}", "run.yaml:2: rate.decay: expected one of linear, cosine, found 'step'"),
        ("corpus: c\nrate: fast", "run.yaml:2: rate: expected a mapping of keys, found 'fast'"),
        ("corpus: c\nstages: {a: 1}", "run.yaml:2: stages: expected a list, found a mapping"),
        ("corpus: c\nstages:\n- {a: 1}\n- {b: x}", "run.yaml:4: stages[1].b: expected a whole number, found 'x'"),
        ("corpus: c\nstages: [3]", "run.yaml:2: stages[0]: expected a mapping, found 3"),
        ("corpus: c\nunits: word", "run.yaml:2: units: expected a list, found 'word'"),
        ("corpus: c\npair: [1]", "run.yaml:2: pair: expected a list of 2 values, found a list"),
        ("corpus: c\npair: [1.5, 2]", "run.yaml:2: pair[0]: expected a whole number, found 1.5"),
        ("corpus: c\neither: x", "run.yaml:2: either: expected a whole number or a list, found 'x'"),
        ("corpus: c\nshapes: {square: 3}", "run.yaml:2: shapes.square: expected a mapping of keys, found 3"),
        ("corpus: c\nshapes:\n  star:\n    side: 3", "run.yaml:3: shapes.star: no shape is called 'star'"),
        ("corpus: c\nshapes:\n  circle:\n    side: 3", "run.yaml:4: shapes.circle.side: unknown key. Known: radius."),
        ("corpus: c\nrate:\n  decay: cosine\n  peak: 0", "run.yaml:4: rate: peak: expected a rate above 0, found 0.0"),
        ("corpus: !!python/name:os.system x", "run.yaml:1: corpus: cannot be read as a value: could not determine a"),
        ("corpus: !!int twelve", "run.yaml:1: corpus: cannot be read as a value: invalid literal for int()"),
        ("corpus: c\nrate: {{peak}}", "run.yaml:2: rate: expected a word as a key, found a mapping or a list"),
        ("corpus: c\n[seed]: 1", "run.yaml:2: expected a word as a key, found a mapping or a list"),
        ("- corpus", "run.yaml:1: expected a mapping of keys, found a list"),
        ("corpus: c\nrate: {peak: 1", "run.yaml:2: is not valid YAML: "),
        ("corpus: c\n\nseed: 1\x07", "run.yaml:3: holds the control character U+0007"),
        ("corpus: c\n---\nseed: 1", "run.yaml:2: is not valid YAML: a second document begins here; expected one"),
        ("corpus: c\nrate: {peak: 1\n", "run.yaml:2: is not valid YAML: "),
        (
            'corpus: "C:\\Users\\c"',
            "run.yaml:1: is not valid YAML: expected escape sequence of 8 hexadecimal numbers, but found 's' (in "
            "double quotes \\ begins an escape: write a path in single quotes, or with /)",
        ),
        ("corpus: &c [*c]", "run.yaml: is nested too deeply, or an alias stands inside its own anchor"),
        ("corpus: " + "[" * 2000, "run.yaml: is nested too deeply"),
    ],
)
def test_an_error_names_file_line_key_and_expected_value(tmp_path: Path, text: str, message: str) -> None:
    found = mistakes(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(message)


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "sede: 1\nrate: {peak: fast, epoch: 1}\nunits: [[3]]\nshapes: {star: {}}")
    places = [line.split(": ")[1] for line in found]
    assert sorted(places) == ["corpus", "rate.epoch", "rate.peak", "sede", "shapes.star", "units[0]"]


def test_every_duplicate_key_is_reported_with_its_first_line(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "corpus: c\nseed: 1\nrate:\n  peak: 1\n  peak: 2\nseed: 2\nseed: 3")
    assert found == [
        "run.yaml:5: rate.peak: this key stands twice (first at run.yaml:4)".replace("at run", f"at {tmp_path}/run"),
        f"run.yaml:6: seed: this key stands twice (first at {tmp_path}/run.yaml:2)",
        f"run.yaml:7: seed: this key stands twice (first at {tmp_path}/run.yaml:2)",
    ]


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "pointer.yaml").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n")
    (tmp_path / "latin.yaml").write_bytes("näme: x".encode("latin-1"))
    for name, reason in (
        ("none.yaml", "there is no such file"),
        ("", "is a folder"),
        ("latin.yaml", "is not UTF-8 text (byte 1)"),
        ("pointer.yaml", "is a Git LFS pointer"),
    ):
        with pytest.raises(UserError, match=reason.replace("(", r"\(").replace(")", r"\)")) as caught:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_an_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(ConfigError(["a: wrong", "b: wrong"])))
    assert str(error) == "a: wrong\nb: wrong"
    assert error.mistakes == ["a: wrong", "b: wrong"]


# ------------------------------------------------------------------------------------------------- include


def test_local_keys_override_included_ones_and_mappings_merge(tmp_path: Path) -> None:
    write(tmp_path, "corpus: c\nseed: 1\nrate: {peak: 1, decay: cosine}\nstages: [{a: 1}, {b: 2}]", "base.yaml")
    config = load(Config, write(tmp_path, "include: base.yaml\nseed: 2\nrate: {peak: 3}\nstages: [{c: 3}]"))
    assert (config.corpus, config.seed) == (Path("c"), 2)
    assert config.rate == Rate(3.0, "cosine")
    assert config.stages == [{"c": 3}]  # a list is replaced as a whole


def test_a_later_included_file_overrides_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path, "corpus: a\nseed: 1\nname: first", "a.yaml")
    write(tmp_path, "corpus: b\nseed: 2", "b.yaml")
    config = load(Config, write(tmp_path, "include: [a.yaml, b.yaml]"))
    assert (config.corpus, config.seed, config.name) == (Path("b"), 2, "first")


def test_includes_are_relative_to_the_including_file(tmp_path: Path) -> None:
    write(tmp_path, "include: deeper/base.yaml", "configs/middle.yaml")
    write(tmp_path, "include: ../../top.yaml\nseed: 5", "configs/deeper/base.yaml")
    write(tmp_path, "corpus: top", "top.yaml")
    config = load(Config, write(tmp_path, "include: configs/middle.yaml"))
    assert (config.corpus, config.seed) == (Path("top"), 5)


def test_two_files_may_include_the_same_third(tmp_path: Path) -> None:
    write(tmp_path, "corpus: c", "base.yaml")
    write(tmp_path, "include: base.yaml\nseed: 1", "a.yaml")
    write(tmp_path, "include: base.yaml\nname: b", "b.yaml")
    config = load(Config, write(tmp_path, "include: [a.yaml, b.yaml]"))
    assert (config.seed, config.name) == (1, "b")


def test_circular_includes_are_reported(tmp_path: Path) -> None:
    write(tmp_path, "include: run.yaml", "other.yaml")
    found = mistakes(tmp_path, "include: other.yaml")
    assert "include each other in a circle" in found[0]
    assert found[0].endswith(f"{tmp_path}/run.yaml -> {tmp_path}/other.yaml -> {tmp_path}/run.yaml")


def test_a_missing_include_is_reported_with_the_including_line(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "corpus: c\ninclude: nowhere.yaml")
    assert found == [f"run.yaml:2: include: there is no file {tmp_path}/nowhere.yaml"]
    assert mistakes(tmp_path, "include: {a: b}") == ["run.yaml:1: include: expected a file name or a list of them"]


def test_an_error_in_an_included_file_names_that_file(tmp_path: Path) -> None:
    write(tmp_path, "corpus: c\nseed: many", "base.yaml")
    assert mistakes(tmp_path, "include: base.yaml") == ["base.yaml:2: seed: expected a whole number, found 'many'"]


# --------------------------------------------------------------------------------------------------- --set


def test_set_overrides_keys_at_any_depth_with_yaml_types(tmp_path: Path) -> None:
    path = write(tmp_path, "corpus: c\nrate: {peak: 1, decay: cosine}\nshapes: {square: {side: 1}}")
    overrides = ["rate.peak=5e-5", "shapes.square.side=3", "shapes.round={task: circle}", "units=[a, b]", "name=a=b"]
    config = load(Config, path, overrides)
    assert config.rate == Rate(5e-5, "cosine")
    assert config.shapes == {"square": Square(3), "round": Circle()}
    assert config.units == ("a", "b")
    assert config.name == "a=b"


def test_the_last_of_two_overrides_wins_and_an_empty_one_is_null(tmp_path: Path) -> None:
    config = load(Config, write(tmp_path, "corpus: c\nfolder: here"), ["seed=1", "seed=2", "folder="])
    assert config.seed == 2
    assert config.folder is None


def test_options_override_the_file_and_set_overrides_both(tmp_path: Path) -> None:
    path, options = write(tmp_path, "corpus: c\nseed: 0\nfolder: there"), {"seed": 1, "folder": "bad\udcff: #"}
    config = build(Config, read(path, ["seed=2"], options))
    assert (config.corpus, config.seed, config.folder) == (Path("c"), 2, Path("bad\udcff: #"))
    with pytest.raises(ConfigError, match=r"^--seed: seed: expected"):
        build(Config, read(path, [], {"seed": "one"}))


@pytest.mark.parametrize("mark", ["|", '"', ">", "-", "?", ";", "'"])
def test_a_mark_given_as_an_override_is_that_mark(tmp_path: Path, mark: str) -> None:
    assert load(Config, write(tmp_path, "corpus: c"), [f"folder={mark}"]).folder == Path(mark)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "--set seed: expected key=value, for instance --set train.lr.peak=5e-5"),
        ("=3", "--set =3: expected key=value"),
        ("sede=3", "--set: sede: unknown key. Did you mean 'seed'?"),
        ("rate.peak=fast", "--set: rate.peak: expected a number, found 'fast'"),
        ("units=[a", "--set units:1: is not valid YAML"),
    ],
)
def test_an_invalid_override_is_reported_with_its_key(tmp_path: Path, override: str, message: str) -> None:
    (found,) = mistakes(tmp_path, "corpus: c", override)
    assert found.startswith(message)


# ---------------------------------------------------------------------------------- variants and round trip


def test_a_variant_is_selected_by_its_key_or_by_task(tmp_path: Path) -> None:
    config = load(Config, write(tmp_path, "corpus: c\nshapes: {square: {side: 2}, wheel: {task: circle}, circle: }"))
    assert config.shapes == {"square": Square(2), "wheel": Circle(), "circle": Circle()}


# PyYAML itself loses the three line separators that only Unicode defines.
names = st.text(
    st.characters(exclude_categories=["Cs", "Zl", "Zp"], exclude_characters="\x85"), min_size=1, max_size=12
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
shapes = st.builds(Square, st.integers()) | st.builds(Circle, numbers)
configs = st.builds(
    Config,
    corpus=st.sampled_from(["a/b", "08", "1e5", "yes", "~", "null", "5e-5", "2.5e3", "0x1f", "#x", "C:"]).map(Path),
    seed=st.integers(),
    name=names,
    quiet=st.booleans(),
    rate=st.builds(Rate, st.floats(min_value=1e-300, allow_infinity=False), st.sampled_from(["linear", "cosine"])),
    stages=st.none() | st.lists(st.dictionaries(names, st.integers())),
    units=st.lists(names).map(tuple),
    pair=st.tuples(st.integers(), numbers),
    either=st.integers() | st.lists(st.integers()),
    folder=st.none() | st.just(Path("x")),
    shapes=st.dictionaries(names, shapes),
)


@given(configs)
def test_a_configuration_survives_a_dictionary(config: Config) -> None:
    assert build(Config, from_dict(to_dict(config))) == config


@given(configs)
def test_a_configuration_survives_a_yaml_file(tmp_path_factory: pytest.TempPathFactory, config: Config) -> None:
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    path.write_text(dump(config), encoding="utf-8", newline="")
    assert load(Config, path) == config
    assert yaml.safe_load(dump(config)) == to_dict(config)  # other YAML readers agree


def test_differences_are_keyed_by_their_path() -> None:
    old = to_dict(Config(Path("a"), rate=Rate(1.0), shapes={"square": Square(1)}))
    new = to_dict(Config(Path("a"), rate=Rate(2.0), shapes={"circle": Circle()}))
    assert differences(old, new) == {
        "rate.peak": (1.0, 2.0),
        "shapes.square": ({"task": "square", "side": 1}, None),
        "shapes.circle": (None, {"task": "circle", "radius": 1.0}),
    }
    assert differences(old, old) == {}


SECRET = "password: hunter2\nseed: hunter2\nrate: {token: hunter2}\n"


@pytest.mark.parametrize("through", ["include", "a link to include", "a link"])
def test_what_a_file_outside_the_folder_holds_is_not_shown(through: str, tmp_path: Path) -> None:
    secret, run = tmp_path / "secret.yaml", tmp_path / "downloaded" / "run.yaml"
    secret.write_text(SECRET)
    run.parent.mkdir()
    if through == "a link":
        run.symlink_to(secret)
    else:
        run.write_text("include: ../secret.yaml" if through == "include" else "include: base.yaml")
        (run.parent / "base.yaml").symlink_to(secret)
    with pytest.raises(ConfigError) as caught:
        load(Config, run)
    name = {"include": f"{run.parent}/../secret.yaml", "a link": f"{run}"}.get(through, f"{run.parent}/base.yaml")
    hidden = "not shown, as its file lies outside the configuration's folder"
    assert not any(word in str(caught.value) for word in ("hunter2", "password", "token"))
    assert f"{name}:1: ...: unknown key, {hidden}. Known: corpus" in str(caught.value)
    assert f"{name}:2: seed: expected a whole number, found something that is {hidden}" in str(caught.value)
    assert f"{name}:3: rate....: unknown key, {hidden}" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["hunter2: [", "hunter2: 1\nhunter2: 2", "a: !!int hunter2", "include: hunter2.yaml", "- hunter2"]
)
def test_what_is_wrong_in_a_file_outside_the_folder_is_not_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text(text)
    found = mistakes(tmp_path / "downloaded", "include: ../secret.yaml")
    assert "../secret.yaml:" in found[0]
    assert "hunter2" not in found[0]


def test_a_configuration_of_ones_own_elsewhere_is_read_and_a_file_within_the_folder_is_shown(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("corpus: c\nseed: 3")
    assert load(Config, write(tmp_path / "runs", "include: ../base.yaml")).seed == 3
    write(tmp_path / "runs" / "more", "sed: 3", "base.yaml")
    assert "more/base.yaml:1: sed: unknown key. Did you mean 'seed'?" in mistakes(
        tmp_path / "runs", "include: more/base.yaml"
    )
