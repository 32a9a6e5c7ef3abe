"""Registries: where an item was registered, suggestions for unknown names, and errors that are never swallowed."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest
from support.helpers import install

from ernie.errors import UserError, nearest
from ernie.registry import Registry, import_asked, import_plugins, plugin_sources


def test_an_item_is_found_with_its_place_of_registration() -> None:
    registry: Registry[type] = Registry("colour")

    @registry.register("red")
    class Red:
        pass

    assert registry["red"] is Red
    assert "red" in registry
    assert "blue" not in registry
    assert re.fullmatch(rf"{re.escape(__file__)}:\d+", registry.place("red"))


def test_names_are_sorted() -> None:
    registry: Registry[str] = Registry("colour")
    for name in ("red", "blue", "green"):
        registry.register(name)(name)
    assert list(registry) == ["blue", "green", "red"]


def test_a_name_registered_twice_is_an_error_that_names_both_places() -> None:
    registry: Registry[type] = Registry("colour")

    @registry.register("red")
    class Red:
        pass

    class Scarlet:
        pass

    with pytest.raises(UserError, match="colour 'red' is registered twice") as caught:
        registry.register("red")(Scarlet)
    lines = [int(line) for line in re.findall(rf"{re.escape(__file__)}:(\d+)", str(caught.value))]
    assert len(set(lines)) == 2
    assert registry["red"] is Red


@pytest.mark.parametrize("name", [type("Red", (), {}), 7, "", "dark.red"])
def test_an_invalid_name_is_rejected_on_registration(name: Any) -> None:
    registry: Registry[type] = Registry("colour")
    with pytest.raises(UserError, match=r"^colour: expected a name to register it by, a text without a dot, found "):
        registry.register(name)


@pytest.mark.parametrize("item", [int, test_names_are_sorted])
def test_an_item_that_is_no_subclass_is_rejected_on_registration(item: Any) -> None:
    registry: Registry[type[ABC]] = Registry("shape", base=ABC)
    with pytest.raises(UserError, match=r"^shape 'blob' \(.*\): expected a subclass of ABC$"):
        registry.register("blob")(item)
    assert "blob" not in registry


def test_the_same_definition_can_be_registered_again() -> None:
    registry: Registry[type] = Registry("colour")
    for _ in range(2):  # as when a module is imported under two names

        @registry.register("red")
        class Red:
            pass

    assert registry["red"] is Red


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("gren", "Did you mean 'green'?"), ("xyz", "Known: blue, green."), (None, "Known: blue, green."), ([1], "Known:")],
)
def test_an_unknown_name_suggests_the_nearest_one_or_lists_all(wrong: str, hint: str) -> None:
    registry: Registry[str] = Registry("colour")
    for name in ("blue", "green"):
        registry.register(name)(name)
    with pytest.raises(UserError, match=re.escape(hint)) as caught:
        registry[wrong]
    assert str(caught.value).startswith(f"no colour is called '{wrong}'.")


def test_an_unknown_name_explains_how_to_add_a_plugin() -> None:
    registry: Registry[str] = Registry("colour", group="nobody.adds.colours")
    with pytest.raises(UserError, match=r"'red'\. For one of your own, list its module under `plugins`\.$"):
        registry["red"]


def test_an_empty_registry_gives_no_hint() -> None:
    assert nearest("red", []) == ""


@pytest.mark.parametrize(
    ("wrong", "known", "right"),
    [("A100", ["a100", "v100", "h100"], "a100"), ("bert-base", ["BERT-Base", "XL"], "BERT-Base")],
)
def test_the_nearest_name_is_found_in_any_case(wrong: str, known: list[str], right: str) -> None:
    assert nearest(wrong, known) == f" Did you mean '{right}'?"


def test_another_distribution_registers_items_through_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry: Registry[str] = Registry("colour", group="test.colours")
    install(tmp_path, "painter", "test.colours", {"purple": "painter_colours"})
    (tmp_path / "painter_colours.py").write_text("import builtins\nbuiltins.test_colours.register('purple')('p')\n")
    monkeypatch.setattr("builtins.test_colours", registry, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert list(registry) == ["purple"]


def test_a_broken_entry_point_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[str] = Registry("colour", group="test.broken")
    install(tmp_path, "spoiler", "test.broken", {"mud": "spoiler_colours"})
    (tmp_path / "spoiler_colours.py").write_text("raise RuntimeError('no paint left')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"plug-in 'mud' of the group test\.broken .* no paint left"):
        registry["mud"]


def test_plugins_are_imported_and_a_broken_one_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good_plugin.py").write_text("import builtins\nbuiltins.test_plugin_loaded = True\n")
    (tmp_path / "bad_plugin.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.setattr("builtins.test_plugin_loaded", False, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="module 'bad_plugin' cannot be imported: ModuleNotFoundError"):
        import_plugins(["good_plugin", "bad_plugin"])
    import builtins

    assert builtins.test_plugin_loaded  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="PYTHONPATH"):
        import_plugins(["no_such_plugin"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import json\n\ndef halve(\n", r"SyntaxError: .*\. See .*plugin_with_a_slip\.py:3$"),
        ("import json\n\njson.loads('{')\n", r"JSONDecodeError: .*\. See .*plugin_with_a_slip\.py:3$"),
    ],
)
def test_an_error_in_a_plugin_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    (tmp_path / "plugin_with_a_slip.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=message):
        import_plugins(["plugin_with_a_slip"])


@pytest.mark.parametrize("file", ["own_colours.py", "lab/own_colours.py", "/lab/own_colours"])
def test_a_plugin_given_as_a_file_is_an_error_that_names_the_module(file: str) -> None:
    with pytest.raises(UserError, match=r"Give its name as an import does, not its file: 'own_colours', with"):
        import_plugins([file])


def test_a_class_that_lacks_methods_is_rejected_on_registration() -> None:
    registry: Registry[type[ABC]] = Registry("shape")

    class Shape(ABC):
        @abstractmethod
        def area(self) -> float: ...

    with pytest.raises(UserError, match=r"^shape 'blob' \(.*test_registry\.py:\d+\) lacks area: it has to"):

        @registry.register("blob")
        class Blob(Shape):
            pass


def test_of_the_many_modules_that_a_file_asks_for_the_first_few_are_listed() -> None:
    asked = [f"stranger{n}" for n in range(20_000)]
    with pytest.raises(UserError, match=r"code from outside the library: stranger0, .*, stranger9\. Code can do"):
        import_asked(asked, "config.yaml: plugins")


def test_editing_any_file_of_a_plugin_changes_its_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_file.py").write_text("rate = 1\n")
    (tmp_path / "whole_lab" / "words").mkdir(parents=True)
    for part in ("__init__.py", "words/__init__.py", "words/phrases.py"):
        (tmp_path / "whole_lab" / part).write_text("")
    names = ["one_file", "whole_lab"]
    import_plugins(names)
    before = plugin_sources(names)
    assert plugin_sources(names) == before
    (tmp_path / "whole_lab" / "words" / "phrases.py").write_text("longest = 4\n")  # not imported by anything yet
    after = plugin_sources(names)
    assert after["one_file"] == before["one_file"]
    assert after["whole_lab"] != before["whole_lab"]
    (tmp_path / "one_file.py").write_text("rate = 2\n")
    assert plugin_sources(names)["one_file"] != before["one_file"]
