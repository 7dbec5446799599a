"""Files are whole or not there, and one process at a time holds a lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from depsue.errors import FileError
from depsue.files import (
    append_synced,
    hold_file,
    hold_thread,
    writable_folder,
    write_file,
    write_synced,
)


def test_a_file_is_written_with_its_folder_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for content in (b"first", b"second"):
        write_file(path, content)
        assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_what_was_there_is_kept_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_synced(path, b"first")

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(FileError, match="have room. Found: .*No space left.*is kept"):
        write_file(path, b"second")
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to_is_said_before_the_work(tmp_path: Path) -> None:
    assert writable_folder(tmp_path / "report") == tmp_path / "report"
    assert list((tmp_path / "report").iterdir()) == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="must be writable. Found: .*file.*--out"):
        writable_folder(tmp_path / "file")


def test_one_holds_a_file_and_a_killed_process_lets_go(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    code = (
        "import sys; from depsue.files import hold_file\n"
        "with hold_file(sys.argv[1]) as held: print(held, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"True\n"
        with hold_file(path) as held:
            assert not held
        process.kill()
        process.wait()
    with hold_file(path) as held, hold_file(path) as again:
        assert (held, again) == (True, False)
    assert list(tmp_path.iterdir()) == []


def test_one_thread_holds_a_name() -> None:
    with hold_thread("a") as first, hold_thread("a") as second, hold_thread("b") as other:
        assert (first, second, other) == (True, False, True)
    with hold_thread("a") as again:
        assert again


def test_half_a_line_on_a_full_disk_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_synced(path, b"first\n", private=True)
    assert path.stat().st_mode & 0o777 == 0o600
    code = (
        "import resource, sys; from pathlib import Path; from depsue.files import append_synced\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "try: append_synced(Path(sys.argv[1]), b'second\\n')\n"
        "except OSError as problem: print(problem.strerror)"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "No space left on device\n"
    assert path.read_bytes() == b"first\n"
    append_synced(path, b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


def test_what_reads_and_serves_can_be_imported_where_unix_modules_are_missing() -> None:
    code = (
        "import sys\n"
        "sys.modules['fcntl'] = sys.modules['resource'] = None\n"
        "import depsue.serving.journal, depsue.serving.running, depsue.cli.serve"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_journal_works_with_what_windows_has(tmp_path: Path) -> None:
    """Its locks, no access by place, no folder that can be opened; it was not run there."""
    code = (
        "import os, sys, types\n"
        "import depsue.serving.service\n"
        "from depsue.serving.journal import Journal, journal_lines\n"
        "from depsue.serving.schema import Reward\n"
        "from depsue.files import hold_file\n"
        "asked = []\n"
        "fake = types.ModuleType('msvcrt'); fake.LK_NBLCK = 2\n"
        "fake.locking = lambda file, how, size: asked.append(os.lseek(file, 0, os.SEEK_CUR))\n"
        "sys.modules.update(msvcrt=fake, fcntl=None, resource=None)\n"
        "del os.pread, os.pwrite\n"
        "sys.platform = 'win32'\n"
        "journal = Journal(sys.argv[1]); journal.open()\n"
        "lines = journal_lines([], [Reward(f'{k:032x}', 'r', '', 1.0, 2.0) for k in range(3)])\n"
        "journal.append(lines[:1]); journal.append(lines[1:])\n"
        "chunk = journal.chunk(10); print(len(chunk.lines), journal.waiting)\n"
        "journal.forget(chunk); print(journal.waiting, journal.is_empty)\n"
        "with hold_file(sys.argv[1] + '/held') as held: print(held)\n"
        "print(len(asked), min(asked) > 1 << 20, os.listdir(sys.argv[1] + '/journal'))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["3 3", "0 True", "True", "2 True []", ""]
