"""Compilers that work and that do not, what is kept on disk, and the loop threads."""

import ctypes
import errno
import importlib.util
import os
import platform
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from offload.devices import diskcache
from offload.errors import ClauseError, InternalError
from offload.loops.running import build, compilers, pool
from offload.loops.running.build import Builder
from offload.loops.tree.ir import SourceLine
from tests.patience import until
from tests.profiles import few

FOUR = "int four(void) { return 4; }"

pytestmark = pytest.mark.skipif(build.builder.compiler is None, reason="no C compiler")


def environ(tmp_path, **variables):
    return {**os.environ, "OFFLOAD_CACHE_DIR": str(tmp_path / "cache"), **variables}


def call(address):
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def counted(tmp_path, slow=""):
    """A compiler that counts how often it compiles."""
    text = f'case "$*" in *--version*) ;; *) echo x >> {tmp_path}/count; {slow} ;; esac\nexec cc "$@"'
    return script(tmp_path / "counted-cc", text)


def count(tmp_path):
    return len((tmp_path / "count").read_text().split())


def working_only_for_the_pool(tmp_path, text):
    """A compiler that makes the loop threads, and does `text` for anything else."""
    said = f'for last; do case "$last" in *.c) grep -q offload_pool_run "$last" && exec cc "$@" ;; esac; done\n{text}'
    return script(tmp_path / "odd-cc", f'case "$*" in *--version*) exit 0 ;; esac\n{said}')


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """What a script does that hangs; limits of compilers count from then on, and not while the machine is slow."""
    communicate = subprocess.Popen.communicate

    def patient(process, timeout):
        until(lambda: process.poll() is not None or (tmp_path / f"{process.pid}.hangs").exists())
        return communicate(process, timeout=timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", patient)
    return f"sleep 100 & echo $! > {tmp_path}/child; touch {tmp_path}/$$.hangs; wait"


# -- compilers -------------------------------------------------------------------------------------------


def test_none_stands_for_no_compiler(tmp_path):
    """With ``OFFLOAD_CC=none`` no compiler is tried, and nothing can be loaded."""
    builder = Builder(environ(tmp_path, OFFLOAD_CC="none"))
    assert builder.compiler is None
    assert builder.tried == ()
    with pytest.raises(InternalError):
        builder.load(FOUR, "four")
    with pytest.raises(InternalError):
        _ = builder.pool


def test_without_any_there_is_none(tmp_path, monkeypatch):
    """Where no command of the list exists, nor the package, there is no compiler."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert Builder(environ(tmp_path, PATH=str(tmp_path), OFFLOAD_CC="", CC="")).compiler is None


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no package ziglang")
def test_the_package_stands_in(tmp_path):
    """Where no command of the list exists, the compiler of the package ``ziglang`` is taken, and works."""
    builder = Builder(environ(tmp_path, PATH=str(tmp_path), OFFLOAD_CC="", CC=""))
    assert builder.compiler.command == (sys.executable, "-m", "ziglang", "cc")
    assert call(builder.load(FOUR, "four")) == 4


def test_the_users_own_come_first(tmp_path):
    """``OFFLOAD_CC`` is tried before ``CC``, that before gcc; options in them are passed on."""
    one, two = script(tmp_path / "one", 'exec cc "$@"'), script(tmp_path / "two", 'exec cc "$@"')
    assert Builder(environ(tmp_path, OFFLOAD_CC=one, CC=two)).compiler.command == (one,)
    assert Builder(environ(tmp_path, OFFLOAD_CC="", CC=f"{two} -g")).compiler.command == (two, "-g")


@pytest.mark.parametrize("text", ["exit 3", "exit 0", "echo rubbish > $PWD/loop.so", None])
def test_a_compiler_that_does_not_work_is_passed_over(tmp_path, hanging, text):
    """One that fails, is silent, writes rubbish or hangs is passed over, and it is told why."""
    bad = script(tmp_path / "bad", f'case "$*" in *--version*) exit 0 ;; esac\n{text or hanging}')
    builder = Builder(environ(tmp_path, OFFLOAD_CC=bad), limit_s=1.0)
    assert builder.compiler is not None
    assert builder.compiler.command != (bad,)
    assert call(builder.load(FOUR, "four")) == 4
    assert bad in builder.tried[0]


@pytest.mark.parametrize(
    ("text", "said"), [("echo loop.c:4:7: no such thing; exit 1", "no such thing"), ("exit 0", "no library")]
)
def test_generated_code_that_is_not_compiled_is_an_internal_error(tmp_path, text, said):
    """The error has the compiler's message, and the user's line by the mark before the generated one."""
    builder = Builder(environ(tmp_path, OFFLOAD_CC=working_only_for_the_pool(tmp_path, text)))
    source = "int four(void)\n{ /* +2 */\n/* +5 */\nreturn x;\n/* +9 */ }"
    with pytest.raises(InternalError, match=said) as caught:
        builder.load(source, "four", SourceLine("user.py", 10))
    if "loop.c" in text:
        assert "user.py:15" in str(caught.value)


def test_a_real_compilers_message_names_the_line(tmp_path):
    """What the compiler of this machine says of a wrong text leads to the user's line."""
    with pytest.raises(InternalError, match=r"user\.py:12"):
        Builder(environ(tmp_path)).load(
            "/* +2 */\nint four(void) { return x; }\n/* +7 */", "four", SourceLine("user.py", 10)
        )


@pytest.mark.parametrize("name", ["OFFLOAD_CC", "CC"])
@pytest.mark.parametrize("value", ['"gcc', "gcc 'x", "gcc \\"])
def test_a_command_that_is_none_is_an_error_with_its_variable(tmp_path, name, value):
    """A command that no shell would take is a `ClauseError`, each time that a compiler is asked for."""
    builder = Builder(environ(tmp_path, **{"OFFLOAD_CC": "", name: value}))
    for _ in range(2):
        with pytest.raises(ClauseError, match=f"^{name}=.* is not a command"):
            _ = builder.compiler


def is_running(stat):
    try:
        return stat.read_text().split()[2] != "Z"
    except OSError:
        return False


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path, hanging):
    """After the limit an error comes, and no process is left."""
    odd = working_only_for_the_pool(tmp_path, hanging)
    builder = Builder(environ(tmp_path, OFFLOAD_CC=odd), limit_s=1.0)
    began = time.monotonic()
    with pytest.raises(InternalError, match="did not end"):
        builder.load(FOUR, "four")
    assert time.monotonic() - began < 60
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    while is_running(child):  # it has been killed, and may take a moment to be gone
        assert time.monotonic() - began < 60
        time.sleep(0.01)


def test_a_function_that_is_not_there_is_an_internal_error(tmp_path):
    """The library is loaded, the name is not found."""
    with pytest.raises(InternalError, match="five"):
        Builder(environ(tmp_path)).load(FOUR, "five")


# -- on disk ---------------------------------------------------------------------------------------------


def libraries(tmp_path):
    return sorted((tmp_path / "cache" / "loops").glob("*.so"))


def test_what_was_compiled_is_kept_for_the_next_process(tmp_path):
    """A second builder compiles nothing; the folder is the user's alone, and one file a key is left."""
    variables = environ(tmp_path, OFFLOAD_CC=counted(tmp_path))
    for _ in range(2):
        assert call(Builder(variables).load(FOUR, "four")) == 4
        assert count(tmp_path) == 2
    where = tmp_path / "cache" / "loops"
    assert where.stat().st_mode & 0o777 == 0o700
    assert len(libraries(tmp_path)) == 2
    assert not list(where.glob("*.part"))
    assert len(diskcache.clear(where)) == 4
    assert not list(where.iterdir())


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the options are those of x86-64")
@pytest.mark.parametrize(("version", "is_kept_from_it"), [("12.2.0", True), ("12.3.0", False), ("4.12.2", False)])
def test_a_gcc_that_contracts_all_the_same_is_kept_from_it(tmp_path, version, is_kept_from_it):
    """gcc 12.0 to 12.2 get options so that they cannot contract, unless the loop allows it."""
    said = f"echo 'gcc (Debian {version}-14) {version}'; echo 'Free Software Foundation'; exit 0"
    command = script(
        tmp_path / "gcc", f'case "$*" in *--version*) {said} ;; esac\necho "$@" > {tmp_path}/options; exit 1'
    )
    compiler = next(compilers.candidates({"OFFLOAD_CC": str(command), "PATH": os.environ["PATH"]}))
    for source, options, expected in (
        ("int x;", (), {"-mno-fma"} if is_kept_from_it else set()),
        ("complex64 x;", (), {"-mno-fma", "-mno-avx512f"} if is_kept_from_it else set()),
        ("complex64 x;", ("-ffp-contract=fast",), set()),
    ):
        with pytest.raises(compilers.CompilerFailure):
            replace(compiler, options=(*compiler.options, *options)).compile(source, tmp_path)
        given = set((tmp_path / "options").read_text().split())
        assert given & {"-mno-fma", "-mno-avx512f"} == expected


def test_other_options_are_another_key(tmp_path):
    """A library is found again by the same compiler with the same options only."""
    for command in ("cc", "cc -g"):
        Builder(environ(tmp_path, OFFLOAD_CC=command)).load(FOUR, "four")
    assert len(libraries(tmp_path)) == 4


@pytest.mark.parametrize("broken", few(1, ["other", b"", b"rubbish", None]))
def test_a_broken_entry_is_compiled_again(tmp_path, broken):
    """One that was cut short, has other contents (those of another library too) or no digest is replaced."""
    variables = environ(tmp_path, OFFLOAD_CC=counted(tmp_path))
    program = f"from offload.loops.running.build import builder; builder.load({FOUR!r}, 'four')"

    def run():
        subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=60)

    run()
    found = libraries(tmp_path)
    contents = [library.read_bytes() for library in found]
    for library, other in zip(found, reversed(contents), strict=True):
        if broken is None:
            library.with_suffix(".sha256").unlink()
        else:
            library.unlink()
            library.write_bytes(other if broken == "other" else broken)
    run()
    assert count(tmp_path) == 4
    run()
    assert count(tmp_path) == 4


def test_what_others_may_write_is_not_loaded(tmp_path):
    """A file, or a folder, that somebody else could have changed is left alone."""
    variables = environ(tmp_path, OFFLOAD_CC=counted(tmp_path))
    Builder(variables).load(FOUR, "four")
    libraries(tmp_path)[0].chmod(0o722)
    Builder(variables).load(FOUR, "four")
    assert count(tmp_path) == 3
    where = tmp_path / "cache" / "loops"
    where.chmod(0o777)
    assert call(Builder(variables).load(FOUR, "four")) == 4
    assert count(tmp_path) == 5
    assert len(libraries(tmp_path)) == 2


def exchanging(parent, function):
    """Return a function before whose first call the folders `cache` and `evil` of `parent` are exchanged."""

    def exchanged(*args, **kwargs):
        if (parent / "evil").exists():
            (parent / "cache").rename(parent / "was here")
            (parent / "evil").rename(parent / "cache")
        return function(*args, **kwargs)

    return exchanged


def with_evil(tmp_path, number):
    """Return a source, with whose library in the cache another one, `evil`, may be exchanged."""
    source = f"int four(void) {{ return 4; }} int own{number}(void) {{ return 0; }}"
    variables = environ(tmp_path)
    # In another process, since a library that was loaded is not loaded again.
    program = f"from offload.loops.running.build import builder; builder.load({source!r}, 'four')"
    subprocess.run([sys.executable, "-c", program], env=variables, check=True, timeout=60)
    compiler = build.builder.compiler
    assert compiler is not None
    evil = tmp_path / "evil" / "loops"
    evil.mkdir(parents=True)
    made = compiler.compile(source.replace("4", "666"), evil)
    assert diskcache.store(evil, compiler.key(source), "so", made.read_bytes())
    return source, variables


@pytest.mark.parametrize("moment", few(1, ["before it is loaded", "before it is read"]))
def test_a_folder_that_is_exchanged_is_not_loaded_from(tmp_path, monkeypatch, moment):
    """The owner of a folder above the cache, who exchanges it behind the check, has nothing of his loaded."""
    source, variables = with_evil(tmp_path, len(moment))
    builder = Builder(variables)
    assert builder.compiler is not None
    owner, name = (Path, "read_bytes") if moment == "before it is read" else (ctypes, "CDLL")
    monkeypatch.setattr(owner, name, exchanging(tmp_path, getattr(owner, name)))
    assert call(builder.load(source, "four")) == 4
    assert (tmp_path / "was here").exists()


def test_what_a_device_runs_is_not_read_from_an_exchanged_folder(tmp_path, monkeypatch):
    """What is kept for a GPU comes from the folder that was checked."""
    for name in ("cache", "evil"):
        assert diskcache.store(tmp_path / name / "loops", "0" * 64, "cubin", name.encode())
    monkeypatch.setattr(Path, "read_bytes", exchanging(tmp_path, Path.read_bytes))
    assert diskcache.read(tmp_path / "cache" / "loops", "0" * 64, "cubin") == b"cache"
    assert (tmp_path / "was here").exists()


def test_without_the_links_of_open_files_no_folder_above_is_anothers(tmp_path):
    """Where the system has no links to open files, a cache is used where nobody else can rename a folder above it."""
    key, links = "0" * 64, tmp_path / "no such folder"
    where = tmp_path / "cache" / "loops"
    assert diskcache.store(where, key, "cubin", b"kept", links)
    assert diskcache.read(where, key, "cubin", links) == b"kept"
    (tmp_path / "cache").chmod(0o777)
    assert diskcache.read(where, key, "cubin", links) is None
    assert not diskcache.store(where, key, "cubin", b"not kept", links)
    assert diskcache.read(where, key, "cubin") == b"kept"


def test_libraries_that_are_kept_nowhere_are_told_apart(tmp_path):
    """However many are compiled where there is no cache, each is loaded as itself."""
    builder = Builder(environ(tmp_path, OFFLOAD_CACHE_DIR="/proc/nothing"))
    for number in (5, 6, 7):
        assert call(builder.load(f"int number(void) {{ return {number}; }}", "number")) == number


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no users")
def test_what_others_own_is_not_loaded(tmp_path, monkeypatch):
    """Files of another user are not loaded and not written."""
    variables = environ(tmp_path, OFFLOAD_CC=counted(tmp_path))
    Builder(variables).load(FOUR, "four")
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert call(Builder(variables).load(FOUR, "four")) == 4
    assert count(tmp_path) == 4


def test_without_a_place_on_disk_it_works(tmp_path):
    """A cache directory that cannot be made is no error."""
    builder = Builder(environ(tmp_path, OFFLOAD_CACHE_DIR="/proc/nothing"))
    assert call(builder.load(FOUR, "four")) == 4


def test_a_full_disk_is_no_error(tmp_path, monkeypatch):
    """Where the library cannot be written in whole it is used from elsewhere, and no part of it stays."""

    def full(path, contents):
        path.with_suffix(".part").touch()
        path.with_suffix(".part").unlink()
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(diskcache, "_write", full)
    assert call(Builder(environ(tmp_path)).load(FOUR, "four")) == 4
    assert not list((tmp_path / "cache" / "loops").iterdir())


def test_two_threads_that_need_one_key_compile_once(tmp_path):
    """However many threads ask at the same time, the compiler runs once a source."""
    builder = Builder(environ(tmp_path, OFFLOAD_CC=counted(tmp_path, slow="sleep 0.2")))
    barrier = threading.Barrier(4)

    def ask(_):
        barrier.wait()
        return builder.load(FOUR, "four")

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(ask, range(4)))) == 1
    assert count(tmp_path) == 2


def test_two_processes_at_once(tmp_path):
    """Both get the function, and one whole file is left."""
    program = (
        "import ctypes; from offload.loops.running.build import builder;"
        f"print(ctypes.CFUNCTYPE(ctypes.c_int)(builder.load({FOUR!r}, 'four'))())"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], env=environ(tmp_path), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in started] == ["4", "4"]
    assert len(libraries(tmp_path)) == 2
    key = libraries(tmp_path)[0].stem
    assert diskcache.find(tmp_path / "cache" / "loops", key) is not None


@pytest.mark.parametrize(
    ("variables", "ends"),
    [
        ({"OFFLOAD_CACHE_DIR": "/x"}, "/x/loops"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/offload/loops"),
        ({"HOME": "/h"}, "/h/.cache/offload/loops"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="another platform's directory")
def test_where_it_is_kept(variables, ends):
    """The user's directory, else the platform's."""
    assert str(diskcache.folder(variables)) == ends


# -- loop threads ----------------------------------------------------------------------------------------

MARKS = """
#include <stdint.h>
void marks(const int64_t *arguments, int64_t begin, int64_t end, int64_t chunk, int64_t worker)
{
    int64_t *out = (int64_t *)arguments[0];
    for (int64_t i = begin; i < end; i++) {
        out[4 * i] += 1;
        out[4 * i + 1] = chunk;
        out[4 * i + 2] = worker;
        out[4 * i + 3] = i;
        for (volatile int64_t spin = 0; spin < arguments[1]; spin++) {}
    }
}
"""


def marks(trips, n_chunks, n_threads, spin=0):
    out = (ctypes.c_int64 * (4 * max(trips, 1)))()
    arguments = (ctypes.c_int64 * 2)(ctypes.addressof(out), spin)
    pool.run(build.builder.load(MARKS, "marks"), ctypes.addressof(arguments), trips, n_chunks, n_threads)
    return [tuple(out[4 * i : 4 * i + 4]) for i in range(trips)]


@pytest.mark.parametrize(("trips", "n_chunks"), [(0, 1), (1, 1), (64, 64), (65, 7), (1000, 64), (3, 5)])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_each_trip_runs_once_in_its_chunk(trips, n_chunks, n_threads, monkeypatch):
    """Chunks cover the trips as agreed, whoever carries them out."""
    monkeypatch.setattr(pool, "n_cores", lambda: 8)
    for _ in range(20):
        for i, (times, chunk, worker, trip) in enumerate(marks(trips, n_chunks, n_threads)):
            assert (times, trip) == (1, i)
            assert trips * chunk // n_chunks <= i < trips * (chunk + 1) // n_chunks
            assert 0 <= worker < n_threads


MEETS = """
#include <stdint.h>
#include <time.h>
void meets(const int64_t *arguments, int64_t begin, int64_t end, int64_t chunk, int64_t worker)
{
    volatile int64_t *seen = (int64_t *)arguments[0];
    time_t began = time(0);
    seen[worker] = 1;
    while (seen[0] + seen[1] + seen[2] + seen[3] < 2 && time(0) - began < 20) {}
}
"""


def n_meeting(n_threads):
    """Return how many threads take part in a loop whose first one waits for a second."""
    seen = (ctypes.c_int64 * 4)()
    arguments = (ctypes.c_int64 * 1)(ctypes.addressof(seen))
    pool.run(build.builder.load(MEETS, "meets"), ctypes.addressof(arguments), 8, 8, n_threads)
    return sum(seen)


def test_helpers_take_part(monkeypatch):
    """A thread that waits in its chunk for another one is not alone for ever, after a pause either."""
    monkeypatch.setattr(pool, "n_cores", lambda: 4)
    for pause_s in (0.0, 0.05):
        time.sleep(pause_s)
        assert n_meeting(4) > 1


def test_a_busy_pool_leaves_the_loop_to_its_caller(monkeypatch):
    """Loops of several Python threads at once are all right, on whichever threads."""
    monkeypatch.setattr(pool, "n_cores", lambda: 3)
    build.builder.load(MARKS, "marks")
    with ThreadPoolExecutor(4) as threads:
        for result in threads.map(lambda _: marks(200, 50, 3, spin=2000), range(40)):
            assert [times for times, *_ in result] == [1] * 200


def test_a_forked_child_has_loop_threads_of_its_own(monkeypatch):
    """After a fork, with helpers asleep or at work in the parent, the child's loops run on new helpers."""
    monkeypatch.setattr(pool, "n_cores", lambda: 2)
    program = """
import os, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from test_build import marks, n_meeting, pool
pool.n_cores = lambda: 3
marks(64, 64, 3, spin=20000)
pid = os.fork()
ok = all(times == 1 for times, *_ in marks(64, 64, 3, spin=20000))
n_threads = n_meeting(3)
if pid == 0:
    os._exit(0 if ok and n_threads > 1 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 and ok
"""
    subprocess.run([sys.executable, "-c", program, str(Path(__file__).parent)], check=True, timeout=60)


def test_a_builder_compiles_after_a_fork(tmp_path):
    """A lock that a thread of the parent held does not stop the child."""
    builder = Builder(environ(tmp_path))
    assert builder.compiler is not None
    builder._lock.acquire()
    builder.after_fork()
    assert call(builder.load(FOUR, "four")) == 4


def test_a_version_that_hangs_is_passed_over(tmp_path):
    """A command that does not even say its version is no compiler."""
    bad = script(tmp_path / "bad", "sleep 60")
    assert bad not in [c.command[0] for c in compilers.candidates(environ(tmp_path, OFFLOAD_CC=bad), limit_s=0.5)]
