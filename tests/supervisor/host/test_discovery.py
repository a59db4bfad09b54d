"""Folders as a real host loads them: what is found, what is broken, what is a fault of the folder (BH-029)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from supervisor.host.child import CONTRACT, HEAD, Child, child, write_folder

from stateous_supervisor.host.folder import look_at
from stateous_supervisor.link.frames import Loaded, Loading

GOOD = "@on_state(states.coding)\ndef coding(ctx):\n    return events.coded()\n"


def loaded(folder: Path, **given: object) -> Loaded:
    with child(folder, **given) as host:
        return host.loaded()


def faults(tmp_path: Path, **files: str) -> list[str]:
    folder = write_folder(tmp_path / "folder", {f"{name}.py": text for name, text in files.items()})
    return loaded(folder).faults


def test_every_file_is_loaded_in_the_order_of_its_name_and_said_before(tmp_path: Path) -> None:
    """A-04: what starts with an underscore is a helper and not loaded by itself."""
    folder = write_folder(
        tmp_path, {"b.py": "import _helper\n" + GOOD, "_helper.py": "", "a.py": "", "_bad.py": "1/0"}
    )
    with child(folder) as host:
        facts = host.loaded()
        assert [frame.file for frame in host.of_kind(Loading)] == ["a.py", "b.py", "contract.py"]
        assert (facts.broken, facts.faults) == ([], [])
        routine = facts.routines[0]
        assert (routine.state, routine.file, routine.name, routine.is_async) == (
            "coding",
            "b.py",
            "coding",
            False,
        )
        text = (folder / "b.py").read_text().splitlines()
        assert text[routine.line - 1] == "@on_state(states.coding)"


def test_a_routine_of_each_kind_is_known_for_what_it_is(tmp_path: Path) -> None:
    """S3-64; A-06: what counts as `async def`."""
    text = """
    import functools
    @on_state(states.coding, isolation="process", timeout="2m", version=3)
    async def coding(ctx): ...

    class Callable:
        async def __call__(self, ctx): ...
    testing = on_state(states.testing)(Callable())

    def wrap(function):
        @functools.wraps(function)
        def inner(ctx): return function(ctx)
        return inner
    @wrap
    @on_state(states.other)
    def other(ctx): ...
    """
    facts = {each.state: each for each in loaded(write_folder(tmp_path, {"a.py": text})).routines}
    assert {state: each.is_async for state, each in facts.items()} == {
        "coding": True,
        "testing": True,
        "other": False,
    }
    coding = facts["coding"]
    assert (coding.isolation, coding.timeout_s, coding.versions) == ("process", 120.0, [3])


def test_broken_files_do_not_take_the_others_down(tmp_path: Path) -> None:
    """A-05, BH-029: each is named with its line and a sentence; the good routine is still there."""
    folder = write_folder(tmp_path / "folder", {"good.py": GOOD, "_deep.py": "x = (\n"})
    texts = {
        "a_syntax.py": "\n\ndef f(:\n    pass\n",
        "b_import.py": "\nimport no_such_module\n",
        "c_exit.py": "import sys\nsys.exit(3)\n",
        "d_raises.py": "\n\n\nraise ValueError('no')\n",
        "e_interrupt.py": "raise KeyboardInterrupt\n",
        "f_through.py": "import _deep\n",
        "h.dotted.py": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "g_latin.py").write_bytes("a = 'é'\n".encode("latin-1"))
    (folder / "i_bom.py").write_bytes(b"\xef\xbb\xbf" + b"a = 1\n")
    (folder / "j_link.py").symlink_to("nowhere.py")
    os.mkfifo(folder / "k_pipe.py")
    (folder / "l_folder.py").mkdir()
    facts = loaded(folder)
    broken = {each.file: (each.line, each.error) for each in facts.broken}
    assert [each.state for each in facts.routines] == ["coding"]
    assert facts.faults == []
    assert broken.pop("a_syntax.py") == (3, "SyntaxError: invalid syntax")
    assert broken.pop("b_import.py") == (2, "ModuleNotFoundError: No module named 'no_such_module'")
    assert broken.pop("c_exit.py") == (2, "importing it exits, with code 3")
    assert broken.pop("d_raises.py") == (4, "ValueError: no")
    assert broken.pop("e_interrupt.py") == (1, "KeyboardInterrupt")
    in_helper = len(HEAD.splitlines()) + 1
    assert broken.pop("f_through.py") == (
        1,
        f"it imports _deep.py, which has in line {in_helper}: SyntaxError: '(' was never closed",
    )
    assert "'utf-8' codec can't decode" in broken.pop("g_latin.py")[1]
    assert broken.pop("h.dotted.py")[1] == "its name has a dot, so it cannot be imported; rename it"
    assert broken.pop("j_link.py")[1] == "it is a link to nowhere.py, which is not there"
    assert broken.pop("k_pipe.py")[1] == "it is no regular file"
    assert broken == {}


def test_circles_of_imports_and_threads_of_an_import_are_no_faults(tmp_path: Path) -> None:
    """BH-029: a circle that Python can resolve; one that it cannot is that file's, and a thread ends with the host."""
    folder = write_folder(tmp_path / "folder", {"good.py": GOOD})
    texts = {
        "_one.py": "import _two\n",
        "_two.py": "import _one\n",
        "circle.py": "import _one\n",
        "_half.py": "from stuck import y\nx = 1\n",
        "stuck.py": "from _half import x\ny = 1\n",
        "thread.py": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    facts = loaded(folder)
    assert [each.state for each in facts.routines] == ["coding"]
    assert facts.faults == []
    assert {each.file for each in facts.broken} == {"stuck.py"}


def test_an_unreadable_file_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root nothing is unreadable, so the answer of the system is given here."""
    (tmp_path / "a.py").write_text("")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert look_at(tmp_path).broken == {"a.py": "it cannot be read: permission denied"}


def test_a_file_that_ends_the_host_is_the_last_one_that_was_named(tmp_path: Path) -> None:
    """A-05: the agent starts the next host without it."""
    folder = write_folder(tmp_path, {"a.py": GOOD, "b.py": "os._exit(9)\n"})
    with Child(folder) as host:
        host.wait_end()
        assert host.of_kind(Loading)[-1].file == "b.py"
    facts = loaded(folder, skip=("b.py",))
    assert [each.state for each in facts.routines] == ["coding"]


def test_a_file_that_is_left_out_cannot_be_imported_by_another_either(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {"a.py": GOOD, "b.py": "os._exit(9)\n", "c.py": "import b\n"})
    (broken,) = loaded(folder, skip=("b.py",)).broken
    assert broken.file == "c.py"
    assert "b.py is left out: importing it hung, or ended the host" in broken.error


@pytest.mark.parametrize(
    "name", ["json.py", "asyncio.py", "_socket.py", "msgspec.py", "stateous.py", "email/__init__.py"]
)
def test_a_file_that_shadows_a_module_is_refused_by_name_before_anything_is_imported(
    tmp_path: Path, name: str
) -> None:
    """A-04."""
    folder = write_folder(tmp_path / "folder", {"a.py": f"open({str(tmp_path / 'ran')!r}, 'w')\n"})
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("")
    facts = loaded(folder)
    assert len(facts.faults) == 1
    assert f"shadows the module '{name.split('/', maxsplit=1)[0].removesuffix('.py')}'" in facts.faults[0]
    assert facts.routines == []
    assert not (tmp_path / "ran").exists()


def test_two_routines_for_one_state_are_refused_with_both_places(tmp_path: Path) -> None:
    """A-06."""
    (fault,) = faults(tmp_path, a=GOOD, b="\n" + GOOD)
    first = len(HEAD.splitlines()) + 1
    assert fault == (
        f"the state 'coding' has two routines: a.py:{first} (coding) and b.py:{first + 1} (coding); it must have one of each version"
    )


def test_two_routines_in_one_file_are_refused_even_under_one_name(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, a=GOOD + "first = coding\n" + GOOD)
    assert "has two routines" in fault


@pytest.mark.parametrize(
    "second", [GOOD, GOOD.replace("states.coding", "states.testing").replace("coded", "passed")]
)
def test_a_routine_that_another_of_its_name_replaces_is_refused_with_both_places(
    tmp_path: Path, second: str
) -> None:
    """BH-029: importing the file leaves only the second, whatever it is the routine of."""
    (fault,) = faults(tmp_path, a=GOOD + second)
    first = len(HEAD.splitlines()) + 1
    assert fault == (
        f"a.py:{first} (coding) is replaced by a.py:{first + 3} (coding), so it would never run; "
        "each routine must have a name of its own"
    )


def test_one_name_in_two_branches_is_one_routine(tmp_path: Path) -> None:
    body = GOOD.replace("\n", "\n    ")
    assert faults(tmp_path, a=f"if True:\n    {body}\nelse:\n    {body}\n") == []


def test_a_routine_that_another_file_imports_counts_once(tmp_path: Path) -> None:
    assert faults(tmp_path, a=GOOD, b="from a import coding\nagain = coding\n") == []


def test_a_state_that_the_contract_does_not_have_is_refused(tmp_path: Path) -> None:
    """A-06: nested states of child workflows are known."""
    good = "@on_state(states.child.first)\ndef first(ctx): ...\n"
    bad = "from stateous import StateRef\n@on_state(StateRef('nowhere'))\ndef f(ctx): ...\n"
    (fault,) = faults(tmp_path, a=good, b=bad)
    assert "b.py" in fault
    assert "the state 'nowhere', which contract.py does not have" in fault
    assert "child/first, coding, other, testing" in fault


@pytest.mark.parametrize(
    ("routine", "said"),
    [
        ("def coding(): ...", "takes (); a routine takes one argument"),
        ("def coding(a, b): ...", "takes (a, b)"),
        ("async def coding(*, ctx): ...", "takes (*, ctx)"),
        ("def coding(ctx):\n    yield", "is a generator function"),
        ("async def coding(ctx):\n    yield", "is a generator function"),
    ],
)
def test_a_function_that_is_no_routine_is_refused(tmp_path: Path, routine: str, said: str) -> None:
    """A-06."""
    (fault,) = faults(tmp_path, a=f"@on_state(states.coding)\n{routine}\n")
    assert fault.startswith("a.py:")
    assert said in fault


def test_a_folder_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    (fault,) = loaded(tmp_path / "nowhere").faults
    assert fault.endswith(
        "nowhere: no such file or directory; it must be a folder with routines that can be read"
    )


def test_a_broken_contract_breaks_the_files_that_need_it_and_says_so(tmp_path: Path) -> None:
    facts = loaded(write_folder(tmp_path, {"a.py": GOOD}, contract="x = (\n"))
    assert [each.file for each in facts.broken] == ["a.py", "contract.py"]
    assert "it imports contract.py, which has in line 1" in facts.broken[0].error


def test_loading_writes_nothing_into_the_folder(tmp_path: Path) -> None:
    """A-07."""
    folder = write_folder(tmp_path, {"a.py": "import _b\n" + GOOD, "_b.py": ""})
    before = sorted(folder.iterdir())
    loaded(folder)
    assert sorted(folder.iterdir()) == before


def test_a_folder_of_the_published_package_runs_without_that_package(tmp_path: Path) -> None:
    """A-10: the contract in these tests imports from `stateous`, as a generated one does."""
    text = (
        "import stateous, stateous_supervisor\nassert stateous.on_state is stateous_supervisor.on_state\n"
        + GOOD
    )
    with child(write_folder(tmp_path, {"a.py": text})) as host:
        assert host.loaded().broken == []
        assert host.result(1).event == "coded"


def test_the_alias_says_what_it_does_not_have(tmp_path: Path) -> None:
    facts = loaded(write_folder(tmp_path, {"flow.py": "from stateous import START, Workflow\n"}))
    assert "is not for routines" in facts.broken[0].error


THEIRS = """
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
P = TypeVar("P")
class Occurrence(Generic[P]):
    def __init__(self, payload=None): self.payload = payload
    @classmethod
    def payload_model(cls):
        model = cls.__orig_bases__[0].__args__[0]
        return None if model is type(None) else model
class Context(Generic[P]): pass
@dataclass(frozen=True)
class StateRef:
    name: str
    emits: tuple = ()
    def __class_getitem__(cls, _): return cls
def on_state(state):
    def mark(function):
        function.__stateous_implements__ = state
        return function
    return mark
"""


def test_where_the_published_package_is_installed_its_marks_and_events_are_understood(tmp_path: Path) -> None:
    """A-10: a stand-in with the published names; the real one is tried in the journeys."""
    installed = tmp_path / "site" / "stateous"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text(THEIRS)
    texts = {
        "a.py": GOOD,
        "b.py": "import stateous_supervisor\n@stateous_supervisor.on_state(states.testing)\n"
        "async def testing(ctx):\n    return events.passed(Result(passed=1))\n",
    }
    folder = write_folder(tmp_path / "folder", texts)
    paths = [str(installed.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with child(folder, env={"PYTHONPATH": os.pathsep.join(paths)}) as host:
        assert host.loaded().broken == []
        assert {each.state for each in host.loaded().routines} == {"coding", "testing"}
        assert host.result(1).event == "coded"
        assert bytes(host.result(2, "testing").payload or b"") == b'{"passed":1,"score":0.0}'


def test_a_namespace_folder_of_that_name_is_not_the_package(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", {"a.py": GOOD})
    (folder / "stateous").mkdir()
    assert [each.state for each in loaded(folder).routines] == ["coding"]


def test_the_host_starts_without_a_contract(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "from stateous_supervisor import StateRef, on_state\n@on_state(StateRef('free'))\ndef f(ctx): ...\n"
    )
    assert [each.state for each in loaded(tmp_path).routines] == ["free"]


def test_pydantic_is_not_imported_by_a_host_whose_folder_does_not(tmp_path: Path) -> None:
    contract = CONTRACT.replace("from pydantic import BaseModel, Field", "BaseModel, Field = object, dict")
    text = GOOD + "@on_state(states.other)\ndef other(ctx):\n    ctx['p'] = 'pydantic' in sys.modules\n"
    with child(write_folder(tmp_path, {"a.py": text}, contract)) as host:
        assert host.result(1).event == "coded"
        assert bytes(host.result(2, "other").context or b"") == b'{"p":false}'
