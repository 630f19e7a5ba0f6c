"""Every error class: raised through the public interface, pickled, fields kept."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import offload as omp
from offload import alloc, errors, in_, inout, to, tofrom
from offload.pragma import omp as pragma

CLASSES = [found for found in vars(errors).values() if isinstance(found, type) and found.__module__ == errors.__name__]


@pytest.mark.parametrize("error", CLASSES)
def test_errors_pickle(error):
    """Each class survives pickling and copying with message, cause of the message and notes; each is public."""
    made = error("what; value; allowed; do")
    made.add_note("in task 'x' (f.py:3)")
    for again in (pickle.loads(pickle.dumps(made)), copy.copy(made)):
        assert type(again) is error
        assert str(again) == str(made)
        assert again.args == made.args
        assert again.__notes__ == made.__notes__
    assert getattr(omp, error.__name__) is error
    assert error.__doc__


def test_memory_errors_keep_their_numbers():
    """The sizes of a DeviceMemoryError survive pickling."""
    again = pickle.loads(pickle.dumps(errors.DeviceMemoryError("m", 10, 5)))
    assert (again.asked_nbytes, again.free_nbytes, str(again)) == (10, 5, "m")


def test_hierarchy():
    """Errors are also what users who know nothing of offload would catch."""
    for error, base in (
        (errors.ClauseError, ValueError),
        (errors.NotPresentError, LookupError),
        (errors.UsageError, RuntimeError),
        (errors.UnsupportedError, NotImplementedError),
        (errors.DeviceMemoryError, MemoryError),
        (errors.RuntimeClosedError, errors.UsageError),
        (errors.LeakError, errors.UsageError),
        (errors.ExtensionError, errors.MapError),
        (errors.PragmaError, SyntaxError),
        (errors.PragmaError, errors.ClauseError),
        (errors.UnsupportedPragmaError, errors.PragmaError),
        (errors.UnsupportedPragmaError, NotImplementedError),
    ):
        assert issubclass(error, base)
        assert issubclass(error, errors.OffloadError)


def raise_memory():
    omp.target_alloc(1 << 30)


def raise_lost():
    stream = omp.stream()
    stream.launch(lambda: 1 / 0)
    omp.device(0).synchronize()


def raise_depend():
    failed = omp.task(depend=[inout(("x",))])(lambda: 1 / 0)()
    after = omp.task(depend=[in_(("x",))])(lambda: None)()
    failed.exception()
    after.result()


def raise_present():
    omp.target(map=[to("a", present=True)])(lambda a: None)(np.zeros(3))


def raise_extension():
    a = np.zeros(10)
    with omp.target_data(map=[alloc(a[:5])]):
        omp.target_enter_data(map=[to(a)])


def raise_map():
    a = np.zeros(3)
    a.flags.writeable = False
    omp.target(map=[tofrom(a)])(lambda a: None)(a)


def raise_event():
    event = omp.Event()
    event.fulfill()
    event.fulfill()


def raise_closed():
    runtime = omp.Runtime("sim")
    runtime.close()
    with runtime:
        pass


def raise_region_closed():
    d = omp.target_alloc(4)
    omp.target_free(d)
    omp.target_memset(d, 0)


def raise_leak():
    with omp.Runtime("sim", check=True):
        omp.target_alloc(4)


REACHABLE = {
    errors.ClauseError: lambda: omp.Runtime(num_threads=-1),
    errors.DependError: raise_depend,
    errors.MapError: raise_map,
    errors.NotPresentError: raise_present,
    errors.ExtensionError: raise_extension,
    errors.EventError: raise_event,
    errors.PragmaError: lambda: pragma("taskwait dpend(in: x)"),
    errors.UnsupportedPragmaError: lambda: pragma("threadprivate(x)"),
    errors.UsageError: omp.target(omp.taskwait),
    errors.RuntimeClosedError: raise_closed,
    errors.RegionClosedError: raise_region_closed,
    errors.LeakError: raise_leak,
    errors.DeviceUnavailableError: lambda: omp.Runtime("cuda:99"),
    errors.DeviceMemoryError: raise_memory,
    errors.DeviceLostError: raise_lost,
}


@pytest.mark.parametrize("error", REACHABLE)
def test_errors_are_raised(error):
    """Each class that a program can meet is raised through the public interface, and pickles as it was raised."""
    with omp.Runtime("sim", env={"OFFLOAD_SIM_MEMORY": "1M"}), pytest.raises(error) as caught:
        REACHABLE[error]()
    assert type(caught.value) is error
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is error
    assert str(again) == str(caught.value)
    assert len(str(again)) > 20


def test_pragma_errors_keep_their_place():
    """A PragmaError points at the token, as any SyntaxError does, also after pickling."""
    with pytest.raises(errors.PragmaError) as caught:
        pragma("taskwait dpend(in: x)")
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert (error.filename, error.lineno, error.text) == ("<directive>", 1, "taskwait dpend(in: x)")
        assert error.text[error.offset - 1 : error.end_offset - 1] == "dpend"
        assert (error.span.begin, error.span.end) == (9, 14)


def test_host_fallback_warns_once():
    """With no device at all a target region runs on the host, with one warning."""
    with warnings.catch_warnings(record=True) as caught, omp.Runtime("none", check=True):
        warnings.simplefilter("always")
        for _ in range(3):
            assert omp.target(omp.is_initial_device)()
        assert omp.target(device=-1)(omp.is_initial_device)()
    ours = [warning.category for warning in caught if issubclass(warning.category, errors.OffloadWarning)]
    assert ours == [errors.HostFallbackWarning]  # the collector may warn of what an earlier test has left open


def test_an_error_at_the_call_creates_nothing():
    """A construct that raises at the call generates no task, also with nowait."""
    a = np.zeros(4)
    with omp.Runtime("sim", check=True) as runtime:
        frame = runtime.scope().region
        for call in (
            lambda: omp.target(nowait=True, device=5)(lambda a: None)(a),
            lambda: omp.target(nowait=True, map=[to("b")])(lambda a: None)(a),
            lambda: omp.target(nowait=True, map=[to("a[0:9]")])(lambda a: None)(a),
            lambda: omp.target(nowait=True, map=[to("n")])(lambda a, n: None)(a, 3),
            lambda: omp.task(depend=[in_("b")])(lambda a: None)(a),
            lambda: omp.task(depend=[in_("a[2:3]")])(lambda a: None)(a),
            lambda: omp.target(nowait=True)(lambda a: None)(np.array([None])),
            lambda: omp.target_enter_data(map=["a"], nowait=True),
        ):
            with pytest.raises(errors.DirectiveError):
                call()
            assert not frame.children.live
        assert len(frame.tracker) == 0
        assert not runtime.places[0].in_flight
