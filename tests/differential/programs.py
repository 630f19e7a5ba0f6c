"""Random programs of constructs, as plain data: lists of steps that `tests.differential.world` carries out.

A program is a dictionary that JSON can hold: what the runtime is opened with, and steps. A step is a dictionary with
the name of an operation and its arguments. Arrays are numbers of the world's arrays, and an item is ``[number, view]``.
Blocks, chains and threads have steps of their own.

The results of a program must not depend on timing. Therefore constructs are synchronous or waited for, except in a
chain, where each of them names the whole storage that it uses in ``depend``, and except those of one OpenACC queue.
Threads have arrays, device memory and queues of their own.
"""

from __future__ import annotations

import random

N_ARRAYS = 14
"""Arrays of a world, see `tests.differential.world.arrays`; some share memory."""

ROOTS = [0, 1, 2, 3, 3, 5, 5, 5, 8, 9, 10, 11, 12, 12]
"""For each array the first one that is in the same memory."""

N_SLOTS = 3
VIEWS = [None] * 12 + ["head", "tail", "step", "section", "gap", "reverse", "transpose", "empty"]
VECTORS, MATRICES = (0, 0, 1, 1, 2, 3, 4, 9, 11, 13), (5, 5, 7, 8)

ONE_ARRAY = (
    "inc",
    "inc",
    "inc",
    "twice",
    "total",
    "fill",
    "part",
    "gap",
    "present",
    "kept",
    "fails",
    "view",
    "keyword",
)
TWO_ARRAYS = ("add", "add", "named", "to_only", "private", "captured", "closure", "all_of")
TASKS = ("bump", "bump", "sum", "nested", "fails", "returns", "final", "tuple")
ACC_ONE = ("inc", "inc", "serial", "kernels", "copyin", "create", "present", "no_create", "fails", "reduced")
LOOPS = ("saxpy", "double", "sweep", "dot", "scatter", "count", "outside", "wrong", "host", "acc", "deferred", "search")
GRAPHS = ("nested", "present", "chain", "mixed", "data", "copies", "fails", "host")
WEIGHTS = {
    "target": 10,
    "enter": 6,
    "exit": 5,
    "update": 6,
    "task": 4,
    "acc": 6,
    "acc_enter": 3,
    "acc_exit": 3,
    "acc_update": 4,
    "acc_routine": 3,
    "alloc": 2,
    "free": 1,
    "memcpy": 4,
    "rect": 2,
    "memset": 1,
    "on_slot": 3,
    "host": 3,
    "reshape": 2,
    "retype": 1,
    "protect": 2,
    "static": 2,
    "pointer": 1,
    "drain": 1,
    "block": 3,
    "acc_block": 2,
    "group": 1,
    "chain": 4,
    "repeat": 5,
    "hot": 8,
    "following": 1,
    "depobj": 1,
    "coroutine": 1,
    "stream": 1,
    "persist": 2,
    "interop": 1,
    "buffers": 1,
    "acc_memory": 1,
    "queues": 3,
    "taskloop": 2,
    "detach": 2,
    "graph": 4,
    "record": 1,
    "loop": 3,
    "object": 2,
    "default": 1,
    "copy": 1,
    "cancel": 1,
    "wrong": 2,
    "threads": 1,
}
"""How often each operation is drawn."""

IN_CHAIN = ("target", "target", "update", "enter", "exit", "task", "task", "memcpy", "loop", "on_slot", "static")
IN_HOT = ("target", "target", "update", "acc", "acc_update", "task", "loop", "on_slot", "static", "host", "memcpy")
IN_QUEUES = ("acc", "acc", "acc_update", "acc_enter", "acc_exit", "acc_routine")
ALONE = ("threads", "default", "persist")
"""Operations that are not carried out within others."""


def program(seed):
    """Return the program of a seed."""
    return Programs(seed).program()


class Programs:
    """Draws one program.

    Attributes
    ----------
    draw : random.Random
        The source of all choices.
    n_devices : int
        How many devices the runtime has.
    is_clean : bool
        No step reads storage that nothing has written, because such storage is not filled.
    depth : int
        Of blocks around the step that is drawn.
    """

    def __init__(self, seed):
        self.seed = seed
        self.draw = random.Random(seed)
        self.n_devices = self.draw.choice((1, 1, 1, 2, 2, 3))
        self.is_clean = self.draw.random() < 0.4
        self.depth = 0

    def program(self):
        """Return the runtime's settings and the steps."""
        env = {}
        if self.n_devices > 1 and self.draw.random() < 0.15:
            env["OFFLOAD_LOOP_DEVICES"] = "all"
        if self.draw.random() < 0.3:
            env["OMP_CANCELLATION"] = "true"
        if self.draw.random() < 0.2:
            env["OMP_MAX_TASK_PRIORITY"] = "9"
        runtime = {
            "devices": f"sim:{self.n_devices}",
            "num_threads": self.draw.choice((0, 0, 1, 3)),
            "check": not self.is_clean,
            "seed": self.draw.choice((None, None, None, self.seed)) if not self.is_clean else None,
            "env": env,
        }
        steps = [{"op": "alloc", "slot": slot, "device": None, "count": 12} for slot in range(2) if self.is_so(0.7)]
        steps += self.steps(self.draw.randint(4, 20))
        has_compiler = self.seed // 100 % 4 != 3
        return {
            "seed": self.seed,
            "runtime": runtime,
            "keeps": self.is_so(0.5),
            "has_compiler": has_compiler,
            "steps": steps,
        }

    def steps(self, count, names=None):
        """Return so many steps, of the operations named or of all that fit here."""
        if names is None:
            names = [name for name in WEIGHTS if not (self.depth and name in ALONE)]
            chosen = self.draw.choices(names, [WEIGHTS[name] for name in names], k=count)
        else:
            chosen = self.draw.choices(names, k=count)
        return [{"op": name, **getattr(self, name)()} for name in chosen]

    def within(self, count, names=None):
        """Return the steps of a block."""
        self.depth += 1
        try:
            return self.steps(count if self.depth < 3 else min(count, 2), names)
        finally:
            self.depth -= 1

    # -- choices ---------------------------------------------------------------------------------------
    def is_so(self, probability):
        return self.draw.random() < probability

    def array(self):
        """Return the number of an array; the first ones more often, so that steps meet."""
        return min(self.draw.randrange(N_ARRAYS), self.draw.randrange(N_ARRAYS))

    def item(self):
        return [self.array(), self.draw.choice(VIEWS)]

    def device(self):
        """Return the number of a device, most often None; sometimes the host's, or one that does not exist."""
        if self.is_so(0.65):
            return None
        if self.is_so(0.06):
            return self.draw.choice((-1, self.n_devices, self.n_devices + 3))
        return self.draw.randrange(self.n_devices)

    def where(self):
        """Return the clause that says on which device a data construct is: ``device``, ``devices``, or none."""
        if self.n_devices > 1 and self.is_so(0.2):
            count = self.draw.randint(1, self.n_devices)
            numbers = self.draw.sample(range(self.n_devices), count)
            return {"devices": "all" if self.is_so(0.5) else numbers}
        device = self.device()
        return {} if device is None else {"device": device}

    def more(self):
        """Return rare clauses of a construct."""
        return {"if_": False} if self.is_so(0.06) else {}

    def map_types(self, kinds):
        """Return map clauses ``[type, item, modifiers]``."""
        clauses = []
        for _ in range(self.draw.choice((1, 1, 1, 2, 3))):
            modifiers = [name for name in ("always", "present") if self.is_so(0.2)]
            clauses.append([self.draw.choice(kinds), self.item(), modifiers])
        return clauses

    # -- OpenMP ----------------------------------------------------------------------------------------
    def target(self):
        kind = self.draw.choice(ONE_ARRAY + TWO_ARRAYS)
        count = 1 if kind in ONE_ARRAY else 2
        step = {"function": kind, "items": [self.item() for _ in range(count)], "device": self.device(), **self.more()}
        if self.is_so(0.1):
            step["defaultmap"] = self.draw.choice(("to", "tofrom", "present", "none", "firstprivate"))
        if self.is_so(0.1):
            step["priority"] = self.draw.randrange(4)
        if self.is_so(0.1):
            step["name"] = self.draw.choice(("first", "second"))
        return step

    def enter(self):
        kinds = (
            ("to", "to", "to", "tofrom")
            if self.is_clean
            else ("to", "to", "to", "alloc", "alloc", "tofrom", *(["from_"] * self.is_so(0.1)))
        )
        return {"maps": self.map_types(kinds), "where": self.where(), **self.more()}

    def exit(self):
        kinds = ("from_", "from_", "release", "release", "delete", "tofrom", "to")
        return {"maps": self.map_types(kinds[: 6 + self.is_so(0.1)]), "where": self.where(), **self.more()}

    def update(self):
        step = {"to": [], "from_": [], "where": self.where(), "present": self.is_so(0.2), **self.more()}
        for _ in range(self.draw.choice((1, 1, 2))):
            step[self.draw.choice(("to", "from_"))].append(self.item())
        return step

    def task(self):
        kinds = ("in_", "out", "inout", "mutexinoutset", "inoutset", "task", "string", "all_memory")
        step = {"function": self.draw.choice(TASKS), "array": self.array(), "type": self.draw.choice(kinds)}
        if self.is_so(0.1):
            step["if_"] = False
        if self.is_so(0.1):
            step["priority"] = self.draw.randrange(4)
        if self.is_so(0.15):
            step["final"] = True
        return step

    def static(self):
        return {"which": self.draw.randrange(3)}

    def pointer(self):
        return {"item": self.item(), "device": self.device()}

    def drain(self):
        return {"array": self.array(), "device": self.draw.randrange(self.n_devices)}

    def object(self):
        kinds = ("target", "enter", "exit", "update", "block")
        return {
            "kind": self.draw.choice(kinds),
            "is_part": self.is_so(0.3),
            "items": [self.item(), self.item()],
            "device": self.device(),
        }

    def block(self):
        kinds = ("to", "tofrom", "tofrom") if self.is_clean else ("to", "tofrom", "alloc", "from_")
        step = {"maps": self.map_types(kinds), "where": self.where(), "raises": self.is_so(0.08), **self.more()}
        step["deferred"] = self.is_so(0.1)
        step["addresses"] = self.is_so(0.15)
        return {**step, "steps": self.within(self.draw.randint(1, 5))}

    def group(self):
        step = {"reduces": self.is_so(0.5), "array": self.draw.choice((0, 1, 2, 10)), "raises": self.is_so(0.1)}
        return {**step, "steps": self.within(self.draw.randint(1, 4), IN_CHAIN)}

    def chain(self):
        return {"steps": self.within(self.draw.randint(2, 6), IN_CHAIN), "waits": self.draw.choice((None, "depend"))}

    def repeat(self):
        return {"steps": self.within(self.draw.randint(1, 2)), "times": self.draw.choice((2, 3, 5))}

    def cancel(self):
        return {"array": self.array(), "count": self.draw.randint(1, 4)}

    def taskloop(self):
        sizes = self.draw.choice(({}, {"grainsize": 3}, {"num_tasks": 4}, {"grainsize": 5, "strict": True}))
        kind = self.draw.choice(("plain", "reduces", "alone", "nogroup", "fails", "sequence"))
        return {
            "array": self.draw.choice((0, 1, 2, 10)),
            "count": self.draw.randint(0, 12),
            "kind": kind,
            "sizes": sizes,
        }

    def detach(self):
        when = self.draw.choice(("before", "inside", "after", "thread", "twice", "fails", "event", "future"))
        return {"array": self.array(), "when": when}

    def graph(self):
        step = {
            "which": self.draw.choice(GRAPHS),
            "arrays": [self.array(), self.array()],
            "times": self.draw.randint(1, 3),
        }
        if self.is_so(0.2):
            step["options"] = self.draw.choice(
                ({"graph_id": 1}, {"graph_reset": True}, {"if_": False}, {"nogroup": True})
            )
        return step

    def following(self):
        return {"array": self.array(), "on_device": self.is_so(0.5)}

    def depobj(self):
        return {"array": self.array()}

    def coroutine(self):
        return {"array": self.array(), "fails": self.is_so(0.2)}

    def stream(self):
        return {"array": self.array()}

    def hot(self):
        """Return steps on one array that is present, which are carried out several times."""
        number, kind = self.array(), self.draw.choice(("target_data", "acc_data", "none", "devices"))
        names, wrapped = self.draw.choice(
            ((IN_HOT, None), (IN_CHAIN, None), (IN_CHAIN, "chain"), (IN_QUEUES, "queues"))
        )
        steps = self.within(self.draw.randint(1, 3), names)
        for step in steps:
            self.put_on(step, number)
        return {"array": number, "kind": kind, "times": self.draw.choice((3, 4, 6)), "within": wrapped, "steps": steps}

    def put_on(self, step, number):
        """Have a step use one array, most often all of it and on the default device."""
        view = None if self.is_so(0.8) else self.draw.choice(VIEWS)
        if "items" in step:
            step["items"] = [[number, view], *step["items"][1:]]
        if "maps" in step:
            step["maps"] = [[kind, [number, view], modifiers] for kind, _, modifiers in step["maps"]]
        for key in ("to", "from_"):
            if step.get(key):
                step[key] = [[number, view]]
        if "array" in step:
            step["array"] = number
        if "item" in step:
            step["item"] = [number, view]
        if self.is_so(0.8):
            step.pop("device", None)
            if "where" in step:
                step["where"] = {}

    def record(self):
        return {"steps": self.within(self.draw.randint(1, 4), IN_CHAIN), "executes": self.is_so(0.7)}

    def default(self):
        return {"device": self.draw.randrange(self.n_devices)}

    def wrong(self):
        return {"which": self.draw.randrange(14), "item": self.item()}

    def threads(self):
        count = self.draw.choice((2, 3))
        return {"programs": [self.within(self.draw.randint(2, 6)) for _ in range(count)]}

    # -- host arrays -----------------------------------------------------------------------------------
    def host(self):
        return {"array": self.array(), "value": self.draw.choice((0.5, 1, 2))}

    def reshape(self):
        return {"array": self.array(), "shape": self.draw.choice(([12], [3, 4], [2, 6], [24], [4, 6]))}

    def retype(self):
        return {"array": self.array(), "dtype": self.draw.choice(("f8", "i8", "f4", "u1"))}

    def protect(self):
        return {"array": self.array(), "is_writeable": self.is_so(0.6)}

    # -- device memory ---------------------------------------------------------------------------------
    def alloc(self):
        return {"slot": self.draw.randrange(N_SLOTS), "device": self.device(), "count": self.draw.choice((12, 12, 24))}

    def free(self):
        return {"slot": self.draw.randrange(N_SLOTS)}

    def end(self):
        """Return an end of a copy: an item of the host, or the number of a slot."""
        if self.is_so(0.6):
            return min(self.draw.randrange(N_SLOTS), self.draw.randrange(N_SLOTS))
        return [self.array(), None] if self.is_so(0.7) else self.item()

    def memcpy(self):
        step = {"dst": self.end(), "src": self.end(), "is_deferred": self.is_so(0.4)}
        if self.is_so(0.3):
            step["more"] = {"nbytes": self.draw.choice((8, 40, 200)), "dst_offset": self.draw.choice((0, 16, 4))}
        return step

    def rect(self):
        step = {"dst": self.end(), "src": self.end(), "is_deferred": self.is_so(0.4)}
        if self.is_so(0.5):
            step["more"] = {"volume": [2, 3], "dst_offsets": [1, 0], "src_offsets": [0, 1]}
            step["dimensions"] = self.is_so(0.7)
        return step

    def memset(self):
        step = {"slot": self.draw.randrange(N_SLOTS), "value": self.draw.choice((0, 1, 255, 300))}
        return {**step, "nbytes": self.draw.choice((None, 16)), "is_deferred": self.is_so(0.4)}

    def on_slot(self):
        return {
            "slot": self.draw.randrange(N_SLOTS),
            "array": self.draw.choice((None, self.array())),
            "device": self.device(),
        }

    def persist(self):
        kinds = ("associate", "associate", "disassociate", "declare", "map_data", "unmap_data")
        step = {"kind": self.draw.choice(kinds), "item": self.item(), "slot": self.draw.randrange(N_SLOTS)}
        return {**step, "device": self.device()}

    def interop(self):
        return {"slot": self.draw.randrange(N_SLOTS), "device": self.device()}

    def buffers(self):
        return {"array": self.array(), "device": self.device()}

    def acc_memory(self):
        return {"item": self.item(), "is_async": self.is_so(0.5)}

    def copy(self):
        return {"dst": self.end(), "src": self.end()}

    # -- loops -----------------------------------------------------------------------------------------
    def loop(self):
        name = self.draw.choice(LOOPS)
        fitting = MATRICES if name == "sweep" else VECTORS
        items = [[self.draw.choice(fitting), self.draw.choice(VIEWS)] for _ in range(2)]
        step = {"function": name, "items": items if self.is_so(0.8) else [self.item(), self.item()]}
        if self.n_devices > 1 and self.is_so(0.3):
            step["devices"] = "all"
        else:
            step["device"] = self.device()
        return step

    # -- OpenACC ---------------------------------------------------------------------------------------
    def queue(self):
        """Return the clauses of a queue."""
        clauses = {} if self.is_so(0.5) else {"async_": self.draw.choice((1, 1, 2, 3, True))}
        if self.is_so(0.15):
            clauses["wait"] = self.draw.choice((1, 2, [1, 2]))
        return clauses

    def acc(self):
        step = {"function": self.draw.choice(ACC_ONE), "items": [self.item()], "queue": self.queue(), **self.more()}
        if self.is_clean and step["function"] == "create":
            step["function"] = "inc"
        if self.is_so(0.25):
            step["device"] = self.draw.randrange(self.n_devices)
        return step

    def acc_enter(self):
        words = ("copyin",) if self.is_clean else ("copyin", "create", "zero")
        return {"word": self.draw.choice(words), "items": [self.item()], "where": self.where(), "queue": self.queue()}

    def acc_exit(self):
        step = {"word": self.draw.choice(("copyout", "delete")), "items": [self.item()], "where": self.where()}
        return {**step, "finalize": self.is_so(0.2), "queue": self.queue()}

    def acc_update(self):
        step = {"word": self.draw.choice(("self_", "device", "host")), "items": [self.item()], "queue": self.queue()}
        where = self.where()
        return {
            **step,
            "where": {"device_num" if key == "device" else key: where[key] for key in where},
            "if_present": self.is_so(0.5),
        }

    def acc_routine(self):
        names = (
            "copyin",
            "copyout",
            "delete",
            "update_device",
            "update_self",
            "is_present",
            "deviceptr",
            "delete_finalize",
        )
        names += () if self.is_clean else ("create",)
        return {"name": self.draw.choice(names), "item": self.item(), "is_async": self.is_so(0.3)}

    def acc_block(self):
        words = ("copy", "copyin", "present", "no_create") + (() if self.is_clean else ("create", "copyout", "zero"))
        step = {"word": self.draw.choice(words), "items": [self.item()], "where": self.where(), "queue": self.queue()}
        step["raises"] = self.is_so(0.08)
        step["uses"] = self.is_so(0.2)
        return {**step, "steps": self.within(self.draw.randint(1, 4))}

    def queues(self):
        return {"steps": self.within(self.draw.randint(2, 6), IN_QUEUES), "count": self.draw.choice((1, 1, 2))}
