"""A library's Fourier transforms on data that compute constructs work on too, in one queue.

The field is transformed, its short waves are taken out, and it is transformed back. The transforms are calls of a
library that knows nothing of OpenACC: it is given device storage, and the stream of the queue that its calls are to be
part of. In OpenACC, with cuFFT:

    cufftPlan2d(&plan, n, n, CUFFT_Z2Z);
    cufftSetStream(plan, acc_get_cuda_stream(1));

    #pragma acc data copy(field[0:n][0:n]) copyin(keep[0:n][0:n])
    {
        #pragma acc host_data use_device(field)
        cufftExecZ2Z(plan, field, field, CUFFT_FORWARD);

        #pragma acc parallel loop collapse(2) present(field[0:n][0:n], keep[0:n][0:n]) async(1)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                field[i][j].x *= keep[i][j] / (n * n);
                field[i][j].y *= keep[i][j] / (n * n);
            }

        #pragma acc host_data use_device(field)
        cufftExecZ2Z(plan, field, field, CUFFT_INVERSE);

        #pragma acc wait(1)
    }

Below, the library is CuPy's on a CUDA device, which takes its stream from a ``with`` block. On the simulated device
NumPy's functions stand for it, which ``launch`` gives to the stream. Both inverses divide by the number of elements.

Run it: ``python examples/acc_host_data.py``.
"""

import numpy as np

import offload as omp
from offload import acc

N = 128
HIGHEST = 12  # the frequencies up to this are kept
QUEUE = 1


@acc.parallel(present=["field", "keep"])
def multiply(field, keep):
    field *= keep


def transform(name, field, stream):
    """Call the library: ``field`` is a device array, and the call returns before the work is done."""
    if omp.device(omp.get_default_device()).kind == "cuda":
        library = omp.array_namespace(field).fft  # cupy.fft
        with field.device, stream:
            field[...] = getattr(library, name)(field)
    else:
        stream.launch(simulated, getattr(np.fft, name), field.unwrap())


def simulated(function, array):
    array[...] = function(array)


def smooth(field, keep):
    """Take the frequencies out of a field at which ``keep`` is 0."""
    stream = acc.get_cuda_stream(QUEUE)
    with acc.data(copy=[field], copyin=[keep]):
        with acc.host_data([field]) as (device_field,):
            transform("fft2", device_field, stream)

        multiply.options(async_=QUEUE)(field, keep)

        with acc.host_data([field]) as (device_field,):
            transform("ifft2", device_field, stream)

        acc.wait(QUEUE)


def main():
    rng = np.random.default_rng(1)
    frequencies = np.abs(np.fft.fftfreq(N, 1 / N))
    keep = np.maximum.outer(frequencies, frequencies) <= HIGHEST
    field = rng.standard_normal((N, N)) + 0j
    expected = np.fft.ifft2(np.fft.fft2(field) * keep)

    smooth(field, keep.astype(float))
    error = abs(field - expected).max()
    print(f"{keep.sum()} of {keep.size} waves kept, largest error {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
