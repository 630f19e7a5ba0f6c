/* CUDA as a host's compiler takes it: the threads of a block take turns, each with a stack of its own.

A thread runs until it comes to a barrier, of the block or of its row of 32, or exchanges values with its row. It goes on
when all of them have come to the same one. Who runs first changes from turn to turn, so that what lacks a barrier shows.
Threads that come to different ones, or never come, are an error of the launch. Blocks run one after another. */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline, unused))
#define __noinline__ __attribute__((noinline, unused))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;

enum State { READY, AT_BLOCK, AT_ROW, DONE };
static const int MOST = 1024, STACK_NBYTES = 1 << 16;
static ucontext_t contexts[MOST]; /* where threads begin; from then on they change places by jumps, without the kernel */
static jmp_buf scheduler, stopped[MOST];
static bool has_begun[MOST];
static State states[MOST];
static const void *places[MOST]; /* where a thread waits */
static uint64_t exchanged[MOST];
static int votes[MOST], current, n_threads;
static uint32_t draw = 1;
static void (*kernel)(void);

/* Lets the others run, and returns once all of the block, or of the row, have come to this place. */
static __attribute__((noinline)) void wait_for(State whom, const void *place)
{
    states[current] = whom;
    places[current] = place;
    if (!_setjmp(stopped[current]))
        _longjmp(scheduler, 1);
}

#define HERE __builtin_return_address(0)
#define COLLECTIVE static __attribute__((noinline, unused))

static void run_thread()
{
    kernel();
    wait_for(DONE, NULL);
}

COLLECTIVE void __syncthreads() { wait_for(AT_BLOCK, HERE); }
COLLECTIVE void __syncwarp() { wait_for(AT_ROW, HERE); }

COLLECTIVE int __syncthreads_or(int here)
{
    int any = 0;
    votes[current] = here;
    wait_for(AT_BLOCK, HERE);
    for (int k = 0; k < n_threads; k++)
        any |= votes[k];
    wait_for(AT_BLOCK, HERE);
    return any;
}

COLLECTIVE int __any_sync(unsigned, int here)
{
    int any = 0;
    votes[current] = here;
    wait_for(AT_ROW, HERE);
    for (int k = current / 32 * 32; k < current / 32 * 32 + 32; k++)
        any |= votes[k];
    wait_for(AT_ROW, HERE);
    return any;
}

static uint64_t from_lane(uint64_t bits, int lane, const void *place)
{
    uint64_t got = bits;
    exchanged[current] = bits;
    wait_for(AT_ROW, place);
    if (lane < 32)
        got = exchanged[current / 32 * 32 + lane];
    wait_for(AT_ROW, place);
    return got;
}

template <class T> COLLECTIVE T __shfl_sync(unsigned, T value, int lane)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = from_lane(bits, lane, HERE);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> COLLECTIVE T __shfl_down_sync(unsigned, T value, int distance)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = from_lane(bits, current % 32 + distance, HERE);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> COLLECTIVE T __shfl_up_sync(unsigned, T value, int distance)
{
    const int lane = current % 32 - distance;
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = from_lane(bits, lane < 0 ? current % 32 : lane, HERE);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void __threadfence() { }

static __attribute__((noinline)) void go_on(int k)
{
    if (_setjmp(scheduler))
        return;
    if (has_begun[k])
        _longjmp(stopped[k], 1);
    has_begun[k] = true;
    setcontext(&contexts[k]);
}

static bool run_ready()
{
    bool any = false;
    draw = draw * 1664525u + 1013904223u;
    const int first = (draw >> 8) % n_threads, step = draw >> 31 ? 1 : n_threads - 1;
    for (int n = 0, k = first; n < n_threads; n++, k = (k + step) % n_threads) {
        if (states[k] != READY)
            continue;
        any = true;
        current = k;
        threadIdx = {k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
        go_on(k);
    }
    return any;
}

/* Tells whether all of these threads wait for each other at one place; then they go on. */
static bool released(int first, int end, State whom)
{
    for (int k = first; k < end; k++)
        if (states[k] != whom || places[k] != places[first])
            return false;
    for (int k = first; k < end; k++)
        states[k] = READY;
    return true;
}

static bool run_block(char *stacks)
{
    n_threads = blockDim.x * blockDim.y * blockDim.z;
    for (int k = 0; k < n_threads; k++) {
        getcontext(&contexts[k]);
        contexts[k].uc_stack.ss_sp = stacks + (size_t)k * STACK_NBYTES;
        contexts[k].uc_stack.ss_size = STACK_NBYTES;
        contexts[k].uc_link = NULL;
        makecontext(&contexts[k], run_thread, 0);
        states[k] = READY;
        has_begun[k] = false;
    }
    for (;;) {
        while (run_ready()) { }
        bool goes_on = released(0, n_threads, AT_BLOCK), is_done = true;
        for (int k = 0; k < n_threads; k += 32)
            goes_on |= released(k, k + 32 < n_threads ? k + 32 : n_threads, AT_ROW);
        for (int k = 0; k < n_threads; k++)
            is_done = is_done && states[k] == DONE;
        if (is_done)
            return true;
        if (!goes_on)
            return false;
    }
}

static int run_grid(void (*of_thread)(void), const long *shape)
{
    char *const stacks = (char *)malloc((size_t)MOST * STACK_NBYTES);
    int failed = 0;
    kernel = of_thread;
    gridDim = {(unsigned)shape[0], (unsigned)shape[1], (unsigned)shape[2]};
    blockDim = {(unsigned)shape[3], (unsigned)shape[4], (unsigned)shape[5]};
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                failed |= !run_block(stacks);
            }
    free(stacks);
    return failed;
}

#define STEP_OF(name, made) \
    template <class T> static T name(T *at, T value) \
    { \
        const T old = *at; \
        *at = (made); \
        return old; \
    }
STEP_OF(atomicAdd, old + value)
STEP_OF(atomicMin, value < old ? value : old)
STEP_OF(atomicMax, value > old ? value : old)
STEP_OF(atomicAnd, old & value)
STEP_OF(atomicOr, old | value)
STEP_OF(atomicXor, old ^ value)
STEP_OF(atomicExch, value)

template <class T, class U, class V> static T atomicCAS(T *at, U expected, V value)
{
    const T old = *at;
    if (old == (T)expected)
        *at = (T)value;
    return old;
}
