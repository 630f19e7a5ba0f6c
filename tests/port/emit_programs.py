"""Generated CuPy programs with streams, in several shapes and styles, as material for the task form.

`program_of(shape, seed)` returns a program without races. Each shape is a pipeline over chunks; the seed chooses how it
is written: at the top of the module, in functions, under ``if __name__ == "__main__":`` or in a class; with ``with
stream:`` or ``stream=``; with events that are recorded again, or new ones; with pinned or pageable memory.
"""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass, field

SHAPES = ("ring", "stages", "two_inputs", "accumulate", "host_step", "parts", "workers", "functions")


@dataclass
class Style:
    """How a program is written."""

    rng: random.Random
    cp: str = "cp"
    lines: list[str] = field(default_factory=list)

    def pick(self, *choices):
        return self.rng.choice(choices)

    def chance(self, share=0.5):
        return self.rng.random() < share

    def stream(self, non_blocking=None):
        flag = self.chance(0.7) if non_blocking is None else non_blocking
        return f"{self.cp}.cuda.Stream(non_blocking=True)" if flag else f"{self.cp}.cuda.Stream()"

    def event(self):
        return self.pick(f"{self.cp}.cuda.Event()", f"{self.cp}.cuda.Event(disable_timing=True)")

    def add(self, text, depth=0):
        self.lines += textwrap.indent(textwrap.dedent(text).strip("\n"), "    " * depth).splitlines()

    def blank(self):
        self.lines.append("")


def program_of(shape: str, seed: int) -> str:
    """Return the text of a program."""
    style = Style(random.Random(f"{shape} {seed}"))  # no secret
    style.cp = style.pick("cp", "cp", "cupy")
    return _SHAPES[shape](style)


def _head(style: Style, title: str) -> None:
    style.add(f'"""{title}"""')
    if style.chance(0.3):
        style.add("from __future__ import annotations")
    style.blank()
    style.add(f"import cupy as {style.cp}" if style.cp != "cupy" else "import cupy")
    style.add("import cupyx")
    style.add("import numpy as np")
    style.blank()


def _data(style: Style, names: list[str], n: int, chunk: int, results: list[str]) -> None:
    """Add host arrays: inputs with numbers, and results."""
    pinned = style.chance(0.6)
    for k, name in enumerate(names):
        if pinned:
            style.add(f'{name} = cupyx.empty_pinned(({n}, {chunk}), "f8")')
            style.add(f"{name}[...] = np.arange({n * chunk}).reshape({n}, {chunk}) % {7 + k}")
        else:
            style.add(f"{name} = (np.arange({n * chunk}) % {7 + k}).reshape({n}, {chunk}).astype(np.float64)")
    for name in results:
        style.add(
            f'{name} = cupyx.zeros_pinned(({n}, {chunk}), "f8")' if pinned else f"{name} = np.zeros(({n}, {chunk}))"
        )


def _upload(style: Style, device: str, host: str, stream: str) -> list[str]:
    return style.pick(
        [f"{device}.set({host}, stream={stream})"],
        [f"with {stream}:", f"    {device}.set({host})"],
    )


def _download(style: Style, device: str, host: str, stream: str) -> list[str]:
    cp = style.cp
    return style.pick(
        [f"{device}.get(stream={stream}, out={host}, blocking=False)"],
        [f"with {stream}:", f"    {device}.get(out={host}, blocking=False)"],
        [f"{cp}.asnumpy({device}, stream={stream}, out={host}, blocking=False)"],
        [f"with {stream}:", f"    {host}[...] = {device}.get()"],
    )


def _compute(style: Style, old: str, new: str) -> list[str]:
    """Return statements that compute one device array from another."""
    cp = style.cp
    if old == new:
        return style.pick(
            [f"{new} *= 2", f"{new} += 1"], [f"{new}[...] = {cp}.sqrt({old}) + 1  # in place"], [f"{new} += 3"]
        )
    return style.pick(
        [f"{new}[...] = {old} * 2 + 1"],
        [f"t = {cp}.sqrt({old})", f"{new}[...] = t + 1"],
        [f"{cp}.add({old}, 1, out={new})", f"{new} *= 3"],
        ["# three passes", f"{new}[...] = {old}", "for _ in range(3):", f"    {new} += {old}"],
    )


def _within(style: Style, stream: str, body: list[str], event: str = "") -> list[str]:
    """Return a ``with`` block, and the record of an event."""
    lines = [f"with {stream}:", *(f"    {line}" for line in body)]
    if not event:
        return lines
    return style.pick([*lines, f"{event}.record({stream})"], [*lines, f"    {event}.record()"])


def _place(style: Style, setup: list[str], loop: list[str], result: str, params: list[str]) -> None:
    """Place the pipeline: at the top, in a function, under a guard."""
    where = style.pick("top", "function", "guard", "main")
    if where == "top":
        style.lines += setup
        style.blank()
        style.add("# the pipeline")
        style.lines += loop
        style.add(result)
    elif where == "function":
        style.add(f"def run({', '.join(params)}):")
        style.add('"""Run the pipeline."""', 1)
        style.lines += [f"    {line}" if line else "" for line in (*setup, "", *loop)]
        style.blank()
        style.blank()
        style.add(f"run({', '.join(params)})")
        style.add(result)
    elif where == "guard":
        style.blank()
        style.add('if __name__ == "__main__":')
        style.lines += [f"    {line}" if line else "" for line in (*setup, *loop, result)]
    else:
        style.blank()
        style.add("def main():")
        style.lines += [f"    {line}" if line else "" for line in (*setup, *loop, result)]
        style.blank()
        style.blank()
        style.add('if __name__ == "__main__":')
        style.add("main()", 1)


def _streams(style: Style, names: list[str]) -> list[str]:
    """Return statements that create streams."""
    kind = style.stream()
    return style.pick(
        [f"{name} = {kind}" for name in names],
        [f"{', '.join(names)} = ({kind} for _ in range({len(names)}))"],
        [f"{', '.join(names)} = {', '.join([kind] * len(names))}"],
    )


def _events(style: Style, names: list[str], count: str) -> list[str]:
    one = style.event()
    if style.chance(0.3) and len(names) > 1:
        return [f"{', '.join(names)} = ([{one} for _ in range({count})] for _ in range({len(names)}))"]
    return [f"{name} = [{one} for _ in range({count})]" for name in names]


def _end(style: Style, streams: list[str]) -> list[str]:
    cp = style.cp
    listed = ", ".join(streams)
    return style.pick(
        [f"{name}.synchronize()" for name in streams],
        [f"for stream in ({listed},):", "    stream.synchronize()"],
        [f"{cp}.cuda.Device().synchronize()"],
        [f"{cp}.cuda.runtime.deviceSynchronize()"],
    )


def _ring(style: Style, n_stages: int = 1, title: str = "A ring of buffers.") -> str:
    cp = style.cp
    n, chunk, slots = style.pick(5, 6, 8), style.pick(16, 40), style.pick(1, 2, 3)
    _head(style, title)
    _data(style, ["source"], n, chunk, ["result"])
    style.add(f"n, slots = {n}, {slots}")
    arrays = ["first", *(f"stage_{k}" for k in range(n_stages))]
    workers = [f"work_{k}" if n_stages > 1 else "work" for k in range(n_stages)]
    setup = _streams(style, ["load", *workers, "store"])
    done = ["loaded", *(f"done_{k}" for k in range(n_stages)), "freed"]
    setup += _events(style, done, "slots")
    setup += [f"{name} = [{cp}.empty({chunk}) for _ in range(slots)]" for name in arrays]
    if style.chance(0.3):
        setup += ["for one in freed:", "    one.record(store)"]
    loop = ["for i in range(n):", "    b = i % slots  # the slot"]
    freed = style.pick("event", "if", "host")
    wait = {"event": ["load.wait_event(freed[b])"], "if": ["if i >= slots:", "    load.wait_event(freed[b])"]}
    body = wait.get(freed, ["if i >= slots:", "    freed[b].synchronize()  # the host waits"])
    body += [
        *_upload(style, "first[b]", "source[i]", "load"),
        style.pick("loaded[b].record(load)", "load.record(loaded[b])"),
    ]
    for k, worker in enumerate(workers):
        body += ["", f"{worker}.wait_event({done[k]}[b])"]
        body += _within(style, worker, _compute(style, f"{arrays[k]}[b]", f"{arrays[k + 1]}[b]"), f"{done[k + 1]}[b]")
    body += ["", f"store.wait_event({done[n_stages]}[b])", *_download(style, f"{arrays[-1]}[b]", "result[i]", "store")]
    body += ["freed[b].record(store)"]
    loop += [f"    {line}" if line else "" for line in body]
    loop += _end(style, ["store"])
    _place(style, setup, loop, "print(result.sum(), result[:, 0])", ["source", "result"])
    return "\n".join(style.lines) + "\n"


def _stages(style: Style) -> str:
    return _ring(style, style.pick(2, 3, 4), "Several stages.")


def _two_inputs(style: Style) -> str:
    cp = style.cp
    n, chunk, slots = style.pick(4, 6), style.pick(16, 40), style.pick(2, 3)
    _head(style, "Two inputs, on a stream each.")
    _data(style, ["left", "right"], n, chunk, ["result"])
    setup = _streams(style, ["load_a", "load_b", "work"])
    setup += _events(style, ["got_a", "got_b", "used"], str(slots))
    setup += [f"{name} = [{cp}.empty({chunk}) for _ in range({slots})]" for name in ("a", "b", "c")]
    loop = [f"for i in range({n}):", f"    k = i % {slots}"]
    body = []
    for one, host, stream, event in (("a", "left", "load_a", "got_a"), ("b", "right", "load_b", "got_b")):
        body += [
            f"{stream}.wait_event(used[k])",
            *_upload(style, f"{one}[k]", f"{host}[i]", stream),
            f"{event}[k].record({stream})",
        ]
    body += ["work.wait_event(got_a[k])", "work.wait_event(got_b[k])"]
    work = style.pick(
        ["c[k][...] = a[k] * b[k]"], ["s = a[k] + b[k]", "c[k][...] = s * s"], [f"{cp}.multiply(a[k], b[k], out=c[k])"]
    )
    body += [*_within(style, "work", work), *_download(style, "c[k]", "result[i]", "work"), "used[k].record(work)"]
    loop += [f"    {line}" for line in body]
    loop += _end(style, ["work"])
    _place(style, setup, loop, "print(result.sum())", ["left", "right", "result"])
    return "\n".join(style.lines) + "\n"


def _accumulate(style: Style) -> str:
    cp = style.cp
    n, chunk, slots = style.pick(4, 7), style.pick(16, 40), style.pick(2, 3)
    _head(style, "Accumulation into one array.")
    _data(style, ["source"], n, chunk, [])
    setup = [f"total = {cp}.zeros({chunk})", *_streams(style, ["load", "add"])]
    setup += _events(style, ["ready", "free"], str(slots))
    setup += [f"part = [{cp}.empty({chunk}) for _ in range({slots})]", f"sums = {cp}.zeros({n})"]
    setup += style.pick([f"{cp}.cuda.Stream.null.synchronize()"], [f"{cp}.cuda.Device().synchronize()"])
    loop = ["for i, piece in enumerate(source):", f"    k = i % {slots}", "    load.wait_event(free[k])"]
    body = [*_upload(style, "part[k]", "piece", "load"), "ready[k].record(load)", "add.wait_event(ready[k])"]
    work = style.pick(
        ["total += part[k]"], ["total[...] = total + part[k] * 2"], [f"{cp}.add(total, part[k], out=total)"]
    )
    if style.chance():
        work = [*work, "sums[i] = part[k].sum()"]
    body += _within(style, "add", work, "free[k]")
    loop += [f"    {line}" for line in body]
    loop += _end(style, ["add"])
    result = style.pick("print(total.get().sum(), sums.get())", f"print({cp}.asnumpy(total)[:3], float(sums.sum()))")
    _place(style, setup, [*loop, result], "print('end')", ["source"])
    return "\n".join(style.lines) + "\n"


def _host_step(style: Style) -> str:
    cp = style.cp
    n, chunk = style.pick(3, 5), style.pick(16, 40)
    _head(style, "A step on the host in between.")
    _data(style, ["source"], n, chunk, ["middle", "result"])
    setup = _streams(style, ["one", "two"])
    setup += [f"x = {cp}.empty({chunk})", f"y = {cp}.empty({chunk})", f"came = {style.event()}"]
    get = style.pick("x.get(stream=one, out=middle[i], blocking=False)", "x.get(stream=one, out=middle[i])", "block")
    body = [*_upload(style, "x", "source[i]", "one"), *_within(style, "one", _compute(style, "x", "x"))]
    if get == "block":
        body += ["with one:", "    middle[i] = x.get()"]
    elif "blocking" in get:
        body += [get, "came.record(one)", "came.synchronize()"]
    else:
        body += [get]
    body += ["middle[i] = np.sort(middle[i])[::-1]  # on the host", "middle[i][0] += i"]
    body += _upload(style, "y", "middle[i]", "two")
    body += [
        *_within(style, "two", ["y *= y"]),
        *_download(style, "y", "result[i]", "two"),
        *(_end(style, ["two"]) if style.chance() else []),
    ]
    loop = [f"for i in range({n}):", *(f"    {line}" for line in body), *_end(style, ["one", "two"])]
    _place(style, setup, loop, "print(result.sum(), middle[-1, :4])", ["source", "middle", "result"])
    return "\n".join(style.lines) + "\n"


def _parts(style: Style) -> str:
    """One big device array, whose parts are worked on."""
    cp = style.cp
    n, chunk = style.pick(4, 6), style.pick(16, 40)
    _head(style, "Parts of one array on the device.")
    style.add(f"n, chunk = {n}, {chunk}")
    style.add("source = np.arange(float(n * chunk))")
    style.add("result = np.empty_like(source)")
    setup = [*_streams(style, ["load", "work", "store"]), f"x = {cp}.empty(n * chunk)", f"y = {cp}.zeros(n * chunk)"]
    setup += [f"{cp}.cuda.Device(0).synchronize()"]
    low = style.pick(["lo = i * chunk", "hi = lo + chunk"], ["lo, hi = i * chunk, (i + 1) * chunk"])
    form = style.pick("lo:hi", "lo:lo + chunk", "i * chunk:(i + 1) * chunk")
    body = [
        *low,
        *_upload(style, f"x[{form}]", f"source[{form}]", "load"),
        "arrived = load.record()",
        "work.wait_event(arrived)",
    ]
    body += ["with work:", f"    y[{form}] = x[{form}] ** 2", f"    y[{form}] += 1"]
    body += style.pick(["computed = work.record()"], [f"computed = {style.event()}", "computed.record(work)"])
    body += ["store.wait_event(computed)", *_download(style, f"y[{form}]", f"result[{form}]", "store")]
    loop = ["for i in range(n):", *(f"    {line}" for line in body), *_end(style, ["store"])]
    _place(style, setup, loop, "print(result.sum(), result[:3])", ["source", "result"])
    return "\n".join(style.lines) + "\n"


def _workers(style: Style) -> str:
    """A list of streams, each with chunks of its own."""
    cp = style.cp
    n_streams, chunk = style.pick(2, 3, 4), style.pick(16, 40)
    _head(style, "Streams side by side.")
    _data(style, ["source"], n_streams, chunk, ["result"])
    setup = [f"streams = [{style.stream()} for _ in range({n_streams})]"]
    setup += [f"buf = [{cp}.empty({chunk}) for _ in range({n_streams})]"]
    head = style.pick(
        ("for i, stream in enumerate(streams):", "source[i]", "buf[i]", "result[i]", "stream"),
        ("for stream, d, h, r in zip(streams, buf, source, result):", "h", "d", "r", "stream"),
        (f"for i in range({n_streams}):", "source[i]", "buf[i]", "result[i]", "streams[i]"),
        ("for i, (stream, d) in enumerate(zip(streams, buf)):", "source[i]", "d", "result[i]", "stream"),
    )
    line, host, device, result, stream = head
    body = [f"with {stream}:", f"    {device}.set({host})", f"    {device} *= 3"]
    if style.chance():
        body += [f"    {device} += 1", f"    {device}.get(out={result}, blocking=False)"]
    else:
        body += _download(style, device, result, stream)
    loop = [line, *(f"    {text}" for text in body)]
    loop += style.pick(["for stream in streams:", "    stream.synchronize()"], [f"{cp}.cuda.Device().synchronize()"])
    _place(style, setup, loop, "print(result.sum())", ["source", "result"])
    return "\n".join(style.lines) + "\n"


def _functions(style: Style) -> str:
    """A function for each stage."""
    cp = style.cp
    n, chunk, slots = style.pick(4, 6), style.pick(16, 40), style.pick(1, 2)
    _head(style, "Functions.")
    _data(style, ["source"], n, chunk, ["result"])
    if style.chance():  # streams as parameters
        style.add(
            """

            def upload(d, h, stream, event):
                d.set(h, stream=stream)
                event.record(stream)


            def scale(d, stream, *, by=2):
                with stream:
                    kernel(d, by)


            def kernel(d, by):
                d *= by
                d += 1


            def download(d, h, stream):
                d.get(out=h, stream=stream, blocking=False)


            def pipeline():
            """
        )
        setup = [*_streams(style, ["load", "work"]), *_events(style, ["loaded", "free"], str(slots))]
        setup += [f"buf = [{cp}.empty({chunk}) for _ in range({slots})]"]
        body = [f"b = i % {slots}", "load.wait_event(free[b])", "upload(buf[b], source[i], load, loaded[b])"]
        body += ["work.wait_event(loaded[b])", style.pick("scale(buf[b], work)", "scale(buf[b], stream=work, by=3)")]
        body += ["download(buf[b], result[i], work)", "free[b].record(work)"]
        loop = [f"for i in range({n}):", *(f"    {line}" for line in body), *_end(style, ["work"])]
        style.lines += [f"    {line}" for line in (*setup, *loop)]
    else:  # streams of a class
        style.add(
            f"""

            class Pipeline:
                def __init__(self, chunk):
                    self.load = {style.stream()}
                    self.work = {style.stream()}
                    self.loaded = {style.event()}
                    self.done = {style.event()}
                    self.x = {cp}.empty(chunk)
                    self.y = {cp}.empty(chunk)

                def step(self, h, out):
                    self.load.wait_event(self.done)
                    self.x.set(h, stream=self.load)
                    self.loaded.record(self.load)
                    self.work.wait_event(self.loaded)
                    with self.work:
                        self.y[...] = self.x * 2 + 1
                        self.y.get(out=out, blocking=False)
                    self.done.record(self.work)

                def finish(self):
                    self.work.synchronize()


            def pipeline():
                p = Pipeline({chunk})
                for h, out in zip(source, result):
                    p.step(h, out)
                p.finish()
            """
        )
    style.add(
        """


        pipeline()
        print(result.sum(), result[0, :3])
        """
    )
    return "\n".join(style.lines) + "\n"


_SHAPES = {
    "ring": _ring,
    "stages": _stages,
    "two_inputs": _two_inputs,
    "accumulate": _accumulate,
    "host_step": _host_step,
    "parts": _parts,
    "workers": _workers,
    "functions": _functions,
}
