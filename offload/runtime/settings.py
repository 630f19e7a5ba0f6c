"""Settings: the variables of the environment, parsed and checked once, when a runtime is made.

Those of OpenMP are the initial values of internal control variables (ICVs): ``OMP_TARGET_OFFLOAD``,
``OMP_DEFAULT_DEVICE``, ``OMP_MAX_TASK_PRIORITY``, ``OMP_CANCELLATION``, ``OMP_DISPLAY_ENV``. OpenACC's are
``ACC_DEVICE_NUM`` and ``ACC_DEVICE_TYPE``, over which OpenMP's and those of `offload` go. A variable that is empty or
blank counts as not set; case does not matter.

OpenMP 5.2, 2.2 "ICV Initialization" and ch. 21 "Environment Variables"; OpenACC 3.3, ch. 4
"Environment Variables" (section numbers unchecked).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from offload.devices import kinds
from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.kind import Kind

_SEED = re.compile(r"[+-]?[0-9]{1,1000}")  # Python refuses to read numbers of some thousand digits
_MOST_DIGITS = 10
"""Of the number of a device, and more than anybody has."""

_DISPLAY_WORDS = {"false": "false", "0": "false", "true": "true", "1": "true", "verbose": "verbose"}
_ACC_DEVICES: dict[str, str | None] = {"default": None, "host": "none"}
"""What the device types of OpenACC that are no kind's are as a specification of devices."""

_FALSE_OR_TRUE = {"false": False, "true": True, "0": False, "1": True}
_SANITIZE = {"0": None, "false": None, "1": "report", "true": "report", "error": "error"}
_NOTIFY = {"0": 0, "1": 1, "2": 2, "3": 3}
_Meaning = TypeVar("_Meaning")
_OPENMP = 202111
"""OpenMP 5.2, as its ``_OPENMP`` macro says it."""


class TargetOffload(StrEnum):
    """``target-offload-var``: the behaviour if there is no device."""

    DEFAULT = "default"  # the host stands in, with a warning
    DISABLED = "disabled"  # there is none, whatever was asked for
    MANDATORY = "mandatory"  # every construct fails


class Unseen(StrEnum):
    """The treatment of failures of tasks that have not been seen when the process ends."""

    FAIL = "fail"  # they are printed, and the process ends with status 1
    REPORT = "report"  # they are printed


class DisplayEnv(StrEnum):
    """The settings that a new runtime prints."""

    NOTHING = "false"
    ICVS = "true"
    ALL = "verbose"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings from which a runtime is made.

    Attributes
    ----------
    target_offload : TargetOffload
        ``OMP_TARGET_OFFLOAD``.
    default_device : int or None
        ``OMP_DEFAULT_DEVICE``: a device number of at least -1 (the host), which may exceed those of the runtime: then
        constructs that use it are refused.
    max_task_priority : int
        ``OMP_MAX_TASK_PRIORITY``: at least 0; higher priorities count as this one.
    cancellation : bool
        ``OMP_CANCELLATION``: whether ``cancel`` does anything.
    display_env : DisplayEnv
        ``OMP_DISPLAY_ENV``.
    acc_device_num : int or None
        ``ACC_DEVICE_NUM``: a device number of at least 0, the default device where ``OMP_DEFAULT_DEVICE`` is not set.
    acc_device_type : str or None
        ``ACC_DEVICE_TYPE``: which devices there are where ``devices`` is None, as a word in lower case.
    devices : str or None
        ``OFFLOAD_DEVICES``.
    hang_s : float
        ``OFFLOAD_HANG_S``: seconds without progress after which a wait reports its goal.
    lease_s : float
        ``OFFLOAD_LEASE_S``: seconds after which the workers of a Dask cluster free the data of a runtime that has not
        renewed its lease.
    loop_devices : str or tuple of int or None
        ``OFFLOAD_LOOP_DEVICES``: ``"all"`` or device numbers, which constructs without ``device`` and ``devices`` have.
    notify : int
        ``OFFLOAD_NOTIFY``: 0, or how much `offload.views.lines` tells, up to 3.
    sanitize : str or None
        ``OFFLOAD_SANITIZE``: ``"report"`` or ``"error"`` for the sanitizer; None for no sanitizer.
    seed : int or None
        ``OFFLOAD_SEED``: the seed of a runtime that is given none.
    trace : str or None
        ``OFFLOAD_TRACE``: the file that a trace of the process is written to.
    unseen : Unseen
        ``OFFLOAD_UNSEEN``.
    env : mapping
        The environment that they come from.
    of_kinds : dict
        The values of the variables of the kinds of devices by name, such as ``OFFLOAD_SIM_MEMORY``; None for one that
        is not set.
    """

    target_offload: TargetOffload
    default_device: int | None
    max_task_priority: int
    cancellation: bool
    display_env: DisplayEnv
    acc_device_num: int | None
    acc_device_type: str | None
    devices: str | None
    hang_s: float
    lease_s: float
    loop_devices: str | tuple[int, ...] | None
    notify: int
    sanitize: str | None
    seed: int | None
    trace: str | None
    unseen: Unseen
    env: Mapping[str, str] = field(repr=False)
    of_kinds: dict[str, Any]

    @property
    def device_spec(self) -> str | None:
        """The devices that the variables ask for, as `Runtime` takes them; None where they leave it open."""
        if self.devices is not None or self.acc_device_type is None:
            return self.devices
        kind = kinds.find_acc_type(self.acc_device_type)
        return _ACC_DEVICES[self.acc_device_type] if kind is None else kind.name

    def of_kind(self, kind: Kind) -> dict[str, Any]:
        """Return the values of the variables of a kind; those of one that has become known since are read now.

        Raises
        ------
        ClauseError
            A variable has a value that means nothing.
        """
        for name, parse in kind.variables.items():
            if name not in self.of_kinds:
                text = self.env.get(name)
                self.of_kinds[name] = parse(text, name) if text else None
        return {name: self.of_kinds[name] for name in kind.variables}

    @property
    def icvs(self) -> dict[str, str | int | None]:
        """The variables of OpenMP and their values; None for one that is not set."""
        return {
            "OMP_TARGET_OFFLOAD": self.target_offload.upper(),
            "OMP_DEFAULT_DEVICE": self.default_device,
            "OMP_MAX_TASK_PRIORITY": self.max_task_priority,
            "OMP_CANCELLATION": str(self.cancellation).upper(),
            "OMP_DISPLAY_ENV": self.display_env.upper(),
        }

    @property
    def variables(self) -> dict[str, str | int | float | None]:
        """All variables and their values: OpenMP's, OpenACC's, then `offload`'s; None for one that is not set."""
        numbers = self.loop_devices
        return {
            **self.icvs,
            "ACC_DEVICE_NUM": self.acc_device_num,
            "ACC_DEVICE_TYPE": None if self.acc_device_type is None else self.acc_device_type.upper(),
            "OFFLOAD_DEVICES": self.devices,
            **self.of_kinds,
            "OFFLOAD_HANG_S": self.hang_s,
            "OFFLOAD_LEASE_S": self.lease_s,
            "OFFLOAD_LOOP_DEVICES": ",".join(map(str, numbers)) if isinstance(numbers, tuple) else numbers,
            "OFFLOAD_NOTIFY": self.notify,
            "OFFLOAD_SANITIZE": self.sanitize,
            "OFFLOAD_SEED": self.seed,
            "OFFLOAD_TRACE": self.trace,
            "OFFLOAD_UNSEEN": self.unseen.upper(),
        }


def read_settings(env: Mapping[str, str] | None) -> Settings:
    """Read the settings from ``env``, or from the process's environment.

    Raises
    ------
    ClauseError
        A variable has a value that means nothing.
    """
    env = os.environ if env is None else env
    settings = Settings(
        target_offload=TargetOffload(_word(env, "OMP_TARGET_OFFLOAD", {word: word for word in TargetOffload})),
        default_device=_default_device(env),
        max_task_priority=_max_task_priority(env),
        cancellation=_word(env, "OMP_CANCELLATION", _FALSE_OR_TRUE),
        display_env=DisplayEnv(_word(env, "OMP_DISPLAY_ENV", _DISPLAY_WORDS)),
        acc_device_num=_acc_device_num(env),
        acc_device_type=_acc_device_type(env),
        devices=env.get("OFFLOAD_DEVICES") or None,
        hang_s=_seconds(env, "OFFLOAD_HANG_S", "30"),
        lease_s=_seconds(env, "OFFLOAD_LEASE_S", "300"),
        loop_devices=_loop_devices(env),
        notify=_word(env, "OFFLOAD_NOTIFY", _NOTIFY),
        sanitize=_word(env, "OFFLOAD_SANITIZE", _SANITIZE),
        seed=_seed(env),
        trace=env.get("OFFLOAD_TRACE", "").strip() or None,
        unseen=Unseen(_word(env, "OFFLOAD_UNSEEN", {word: word for word in Unseen})),
        env=env,
        of_kinds={},
    )
    for kind in kinds.known():
        settings.of_kind(kind)
    return settings


def sanitize_mode(value: object, settings: Settings, *, always: bool) -> str | None:
    """Return how a runtime is to be sanitized: None for not at all, ``"report"`` or ``"error"``.

    Parameters
    ----------
    value : object
        The argument ``sanitize``; None leaves it to the variable.
    settings : Settings
        The variables.
    always : bool
        Whether every runtime is sanitized.

    Raises
    ------
    ClauseError
        The argument is something else than None, a bool or ``"error"``.
    """
    if value is None:
        mode = settings.sanitize
    elif value is True or value is False:
        mode = "report" if value else None
    elif isinstance(value, str) and value == "error":
        mode = "error"
    else:
        raise ClauseError(f"sanitize={value!r:.60} is not allowed; use True, False or 'error'")
    return "report" if mode is None and always else mode


def _seconds(env: Mapping[str, str], name: str, default: str) -> float:
    """Return the seconds in a variable."""
    text = env.get(name, default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise ClauseError(f"{name}={text!r} is not a number of seconds above 0")
    return seconds


def _word(env: Mapping[str, str], name: str, words: Mapping[str, _Meaning]) -> _Meaning:
    """Return the meaning of the word in a variable; the first meaning if it is not set."""
    text = env.get(name, "").strip().lower()
    if text and text not in words:
        raise ClauseError(f"{name}={env[name]!r} is not allowed; write {', '.join(words).upper()}")
    return words[text] if text else next(iter(words.values()))


def _default_device(env: Mapping[str, str]) -> int | None:
    text = env.get("OMP_DEFAULT_DEVICE", "").strip()
    if not text:
        return None
    if not (text == "-1" or (text.isascii() and text.isdecimal())):
        raise ClauseError(f"OMP_DEFAULT_DEVICE={text!r} is not a device number; write 0 or more, or -1 for the host")
    return int(text)


def _acc_device_num(env: Mapping[str, str]) -> int | None:
    text = env.get("ACC_DEVICE_NUM", "").strip()
    if text and not (text.isascii() and text.isdecimal()):
        raise ClauseError(f"ACC_DEVICE_NUM={text!r} is not a device number; write 0 or more")
    return int(text) if text else None


def _acc_device_type(env: Mapping[str, str]) -> str | None:
    text = env.get("ACC_DEVICE_TYPE", "").strip().lower()
    if text and text not in _ACC_DEVICES and kinds.find_acc_type(text) is None:
        words = ["default", *[kind.acc_type for kind in kinds.known() if kind.acc_type is not None], "host"]
        raise ClauseError(
            f"ACC_DEVICE_TYPE={env['ACC_DEVICE_TYPE']!r} is not a type of device here; write {', '.join(words).upper()}"
        )
    return text or None


def _loop_devices(env: Mapping[str, str]) -> str | tuple[int, ...] | None:
    text = env.get("OFFLOAD_LOOP_DEVICES", "").strip().lower()
    if not text or text == "all":
        return text or None
    words = [word.strip() for word in text.split(",")]
    numbers = tuple(int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < _MOST_DIGITS)
    if len(numbers) < len(words) or len(set(numbers)) < len(numbers):
        raise ClauseError(
            f"OFFLOAD_LOOP_DEVICES={env['OFFLOAD_LOOP_DEVICES']!r:.60} does not name devices; write all, or their "
            "numbers, each once, as in 0,1"
        )
    return numbers


def _max_task_priority(env: Mapping[str, str]) -> int:
    text = env.get("OMP_MAX_TASK_PRIORITY", "").strip()
    if text and not (text.isascii() and text.isdecimal()):
        raise ClauseError(f"OMP_MAX_TASK_PRIORITY={text!r} is not a priority; write a number of at least 0")
    return int(text or 0)


def _seed(env: Mapping[str, str]) -> int | None:
    text = env.get("OFFLOAD_SEED", "").strip()
    if text and not _SEED.fullmatch(text):
        raise ClauseError(f"OFFLOAD_SEED={text!r:.60} is not a seed; write an integer, or leave it empty for no seed")
    return int(text) if text else None


def format_env(settings: Settings, default_device: int, *, verbose: bool) -> str:
    """Return the text of ``omp_display_env``: the version of OpenMP and the ICVs, in the form that compilers use.

    Parameters
    ----------
    settings : Settings
        The settings of the runtime.
    default_device : int
        The initial value of default-device-var, which `Settings` knows only where it was set.
    verbose : bool
        Add the variables of OpenACC and of `offload` alone.
    """
    shown = {**(settings.variables if verbose else settings.icvs), "OMP_DEFAULT_DEVICE": default_device}
    lines = [f"  {name} = '{'' if value is None else value}'" for name, value in shown.items()]
    return "\n".join(
        ["OPENMP DISPLAY ENVIRONMENT BEGIN", f"  _OPENMP = '{_OPENMP}'", *lines, "OPENMP DISPLAY ENVIRONMENT END", ""]
    )
