"""The study of the porter's ring, as far as it goes without a GPU: the task form that it writes gives the result."""

import offload as omp
from benchmarks.gpu import ported


def test_the_task_form_of_the_ring(tmp_path):
    """The program that the porter writes of the ring moves other chunks than those recorded, and they are right."""
    emitted = ported.emit(tmp_path / "task_form.py")
    with omp.Runtime("sim"):
        timed = ported.load(emitted, 20, 100)
        time_s, is_right = timed()
    assert is_right
    assert time_s > 0
