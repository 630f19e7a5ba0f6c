#!/usr/bin/env bash
# Run the tests of kernels, copies and maps under NVIDIA's compute-sanitizer, and fail on what it finds: accesses out of
# bounds, misaligned or after a free, and leaked device memory with --leak-check in SANITIZER_FLAGS.
#
#   tests/gpu/sanitize.sh [pytest arguments in place of the usual choice of tests]
#
# TOOL chooses another tool than memcheck (racecheck, initcheck, synccheck), PYTHON another interpreter than python3,
# JOBS in how many processes at a time the tests run, each of which has its share of them (1).
# Each array is an allocation of its own meanwhile (OFFLOAD_TESTS_UNPOOLED), so that the tool knows its bounds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PATH=$PATH:/usr/local/cuda/bin OFFLOAD_TESTS_UNPOOLED=1
python=${PYTHON:-python3} tool=${TOOL:-memcheck} jobs=${JOBS:-1}
readonly found=97

command -v compute-sanitizer >/dev/null || {
    echo "sanitize.sh: no compute-sanitizer; it is in the CUDA toolkit, and in the wheel nvidia-cuda-sanitizer-api" >&2
    exit 2
}

# sanitized COMMAND…: run it under the tool; the status is $found if the tool has found something.
sanitized() {
    # shellcheck disable=SC2086  # flags are words
    # Backtraces of the host keep the frames of Python alive, and with them what the tests count.
    compute-sanitizer --tool "$tool" --show-backtrace device --error-exitcode "$found" --report-api-errors no --print-limit 20 \
        ${SANITIZER_FLAGS:-} "$@"
}

if [[ $tool == memcheck ]]; then # a tool that finds nothing proves nothing: it has to find this
    rc=0
    sanitized "$python" -c '
import cupy
cupy.cuda.set_allocator(None)
beyond = cupy.RawKernel("extern \"C\" __global__ void beyond(float* x) { x[10] = 1; }", "beyond")
beyond((1,), (1,), (cupy.zeros(10, "f4"),))
cupy.cuda.Device().synchronize()' >/dev/null 2>&1 || rc=$?
    if ((rc != found)); then
        echo "sanitize.sh: $tool did not find a write out of bounds (status $rc); does it support this GPU here?" >&2
        exit 2
    fi
    echo "sanitize.sh: $tool finds a write out of bounds"
fi

tests=("$@")
if ((!$#)); then
    # Those left out break a device on purpose, count what is in use of it, or take minutes under the tool.
    left_out="lost or illegal_address or kernel_that_fails or exit or leak or memory or ordering or stress"
    tests=(
        tests/gpu tests/conformance/test_{data,mappers,memcpy,target,update,use_device}.py
        -m "gpu and not soak" -k "not ($left_out)"
    )
fi
rc=0
if ((jobs == 1)); then
    sanitized "$python" -m pytest -q -p no:cacheprovider --timeout=300 "${tests[@]}" || rc=$?
else
    logs=$(mktemp -d)
    trap 'rm -rf "$logs"' EXIT
    pids=()
    for ((job = 0; job < jobs; job++)); do
        OFFLOAD_TESTS_SHARE=$job/$jobs sanitized "$python" -m pytest -q -p no:cacheprovider --timeout=300 "${tests[@]}" \
            >"$logs/$job" 2>&1 &
        pids+=($!)
    done
    for ((job = 0; job < jobs; job++)); do
        one=0
        wait "${pids[job]}" || one=$?
        ((one == 5)) && one=0 # it had no test
        if ((one)); then
            ((rc == found)) || rc=$one
            cat "$logs/$job"
        else
            tail -n 4 "$logs/$job"
        fi
    done
fi
if ((rc == found)); then
    echo "sanitize.sh: $tool has found errors, see above" >&2
fi
exit "$rc"
