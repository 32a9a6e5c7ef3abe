"""Machines find one another through the folder of a run, and notice who is lost and who comes."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from ernie.errors import UserError
from ernie.parallel import machines as module
from ernie.parallel.machines import Machine, Roster, Team, Wish, connected, interfaces, members, own_address

LIMIT = 1.0


class Yard:
    """Machines that share the folder of a run, each with the name and address that it is given."""

    def __init__(self, folder: Path, stack: ExitStack):
        self.folder, self._stack = folder, stack
        self.rosters: dict[str, Roster] = {}

    def enter(self, name: str, most: int = 2, fits: Callable[[int], bool] = lambda _: True) -> Roster:
        roster = Roster(self.folder, f"127.0.0.{name}", LIMIT, (1, most), fits)
        roster.name, roster._file = name, roster._folder / f"{name}.json"
        self.rosters[name] = self._stack.enter_context(roster)
        return roster

    def meet(self, *names: str) -> list[Team]:
        """The teams that these machines come to at the same time."""
        teams: dict[str, Team] = {}
        threads = [
            threading.Thread(target=lambda name=name: teams.update({name: self.rosters[name].meet()})) for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return [teams[name] for name in names]


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    with ExitStack() as stack:
        yield Yard(tmp_path, stack)


def wished(roster: Roster, team: Team, wish: Wish) -> bool:
    """Whether a machine wishes this of its processes within some time."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if roster.look(team) is wish:
            return True
        time.sleep(0.05)
    return False


def test_machines_agree_on_their_order_and_on_where_the_first_one_is(yard: Yard) -> None:
    for name in "21":
        yard.enter(name)
    first, second = yard.meet("1", "2")
    assert first == second
    assert (first.names, first.addresses, first.number) == (["1", "2"], ["127.0.0.1", "127.0.0.2"], 1)
    assert first.port == yard.rosters["1"]._own.port
    assert [yard.rosters[name].look(first) for name in "12"] == [Wish.GO_ON, Wish.GO_ON]


def test_a_machine_that_the_layout_has_no_place_for_waits_and_is_told_of_the_end(yard: Yard) -> None:
    for name in "123":
        yard.enter(name, 3, lambda count: count != 3)
    spare: list[Team] = []
    waiting = threading.Thread(target=lambda: spare.append(yard.rosters["3"].meet()))
    waiting.start()
    team, _ = yard.meet("1", "2")
    assert team.names == ["1", "2"]
    for name in "12":
        yard.rosters[name].end(team, 0)
    waiting.join(30)
    assert spare[0].status == 0


def test_a_machine_that_is_lost_has_the_processes_of_the_others_killed_and_they_meet_without_it(yard: Yard) -> None:
    for name in "12":
        yard.enter(name)
    team, _ = yard.meet("1", "2")
    lost = yard.rosters["1"]
    lost._closed.set()  # its file does not change any more
    assert wished(yard.rosters["2"], team, Wish.KILL)
    [left] = yard.meet("2")
    assert (left.names, left.number) == (["2"], team.number + 1)


def test_a_machine_that_comes_has_the_others_save_and_meet_again(yard: Yard) -> None:
    yard.enter("2")
    [alone] = yard.meet("2")
    assert alone.names == ["2"]
    yard.enter("1")
    newcomer: list[Team] = []
    waiting = threading.Thread(target=lambda: newcomer.append(yard.rosters["1"].meet()))
    waiting.start()
    assert wished(yard.rosters["2"], alone, Wish.END)
    [both] = yard.meet("2")
    waiting.join(30)
    assert [both] == newcomer
    assert both.names == ["1", "2"]


def test_what_an_earlier_run_left_in_the_folder_is_no_machine_and_no_team(yard: Yard) -> None:
    folder = yard.folder / "processes" / "machines"
    folder.mkdir(parents=True)
    left = {"address": "127.0.0.1", "port": 1, "door": 1, "training": True, "team": 7, "beat": 3}
    (folder / "1.json").write_text(json.dumps(left), encoding="utf-8")
    (folder / "0.json").write_text("{", encoding="utf-8")
    earlier = {"number": 7, "names": ["1", "2"], "addresses": ["", ""], "port": 1, "status": 0}
    (folder / "team.json").write_text(json.dumps(earlier), encoding="utf-8")
    yard.enter("3")
    [team] = yard.meet("3")
    assert "1" not in team.names
    assert team.number > 7


def test_a_disk_that_does_not_answer_for_long_makes_nobody_lost(yard: Yard) -> None:
    for name in "12":
        yard.enter(name)
    team, _ = yard.meet("1", "2")
    roster = yard.rosters["2"]
    yard.rosters["1"]._closed.set()
    roster.look(team)
    roster._looked -= 100  # as if the look before had taken so long
    roster._seen = {name: (beat, since - 100) for name, (beat, since) in roster._seen.items()}
    assert roster.look(team) is Wish.GO_ON
    assert "1" in roster._there()


def machine(*reached: str, cut_off: Sequence[str] = (), training: bool = False) -> Machine:
    reaches = {**dict.fromkeys(reached, True), **dict.fromkeys(cut_off, False)}
    return Machine("127.0.0.1", 1, 2, training=training, reaches=reaches)


def test_a_machine_that_is_cut_off_is_in_no_team_though_it_sees_the_folder() -> None:
    there = {
        "1": machine(cut_off="23"),
        "2": machine("3", cut_off="1"),
        "3": machine("2", cut_off="1"),
    }
    assert connected(there) == ["2", "3"]
    assert connected({"1": machine(cut_off="2"), "2": machine(cut_off="1")}) == ["1"]
    assert connected({"1": machine("2"), "2": machine(cut_off="1")}) == ["1"]  # reached in one direction only


def test_no_team_is_formed_before_all_have_tried_all_others_and_while_some_train() -> None:
    assert connected({"1": machine("2"), "2": machine()}) == []
    assert connected({"1": machine("2"), "2": machine("1", training=True)}) == []
    assert connected({"1": machine()}) == ["1"]


def test_too_few_machines_are_an_error_after_some_time(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TO_COME", 0.5)
    roster = yard.enter("1", fits=lambda _: False)
    with pytest.raises(
        UserError, match=r"--machines: 1 are needed, and 1 came in 0.5 s; each has to see the folder .*, and to reach"
    ):
        roster.meet()


def test_a_machine_leaves_nothing_behind(tmp_path: Path) -> None:
    with Roster(tmp_path, "127.0.0.1", LIMIT, (1, 1), lambda _: True) as roster:
        assert roster.meet().addresses == ["127.0.0.1"]
        assert roster._file.exists()
    assert [file.name for file in roster._folder.iterdir()] == ["team.json"]


@pytest.mark.parametrize(("text", "wanted"), [("4", (4, 4)), ("2:4", (2, 4)), ("1:1", (1, 1))])
def test_machines_are_a_number_or_the_least_and_the_most(text: str, wanted: tuple[int, int]) -> None:
    assert members(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "4:2", "two", "2:", "-1", "1:2:3"])
def test_other_numbers_of_machines_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--machines: expected a number such as 4, or the least and the most"):
        members(text)


def test_a_machine_knows_its_addresses() -> None:
    assert "127.0.0.1" in interfaces().values()
    socket.create_server((own_address(), 0)).close()
