/* CUDA as a host's compiler takes it: the threads of a block take turns, each with a stack of its own.

A thread runs until a barrier, or until a shuffle, which all threads of its row come to in the same turn. Blocks run one
after another. */
#include <math.h>
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
#define __launch_bounds__(n)

struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;

enum State { READY, AT_BARRIER, DONE };
static const int MOST = 1024, STACK_NBYTES = 1 << 16;
static ucontext_t scheduler, contexts[MOST];
static State states[MOST];
static uint64_t exchanged[MOST];
static int current;
static void (*kernel)(void);

static void turn(State state)
{
    states[current] = state;
    swapcontext(&contexts[current], &scheduler);
}

static void run_thread()
{
    kernel();
    turn(DONE);
}

static void __syncthreads() { turn(AT_BARRIER); }

template <class T> static T __shfl_down_sync(unsigned, T value, int distance)
{
    T got = value;
    memcpy(&exchanged[current], &value, sizeof value);
    turn(READY);
    if (current % 32 + distance < 32)
        memcpy(&got, &exchanged[current + distance], sizeof got);
    turn(READY);
    return got;
}

static bool run_ready(int n_threads)
{
    bool any = false;
    for (int k = 0; k < n_threads; k++) {
        if (states[k] != READY)
            continue;
        any = true;
        current = k;
        threadIdx = {k % blockDim.x, k / blockDim.x % blockDim.y, k / blockDim.x / blockDim.y};
        swapcontext(&scheduler, &contexts[k]);
    }
    return any;
}

static void run_block(char *stacks)
{
    const int n_threads = blockDim.x * blockDim.y * blockDim.z;
    for (int k = 0; k < n_threads; k++) {
        getcontext(&contexts[k]);
        contexts[k].uc_stack.ss_sp = stacks + (size_t)k * STACK_NBYTES;
        contexts[k].uc_stack.ss_size = STACK_NBYTES;
        contexts[k].uc_link = &scheduler;
        makecontext(&contexts[k], run_thread, 0);
        states[k] = READY;
    }
    for (;;) {
        while (run_ready(n_threads)) { }
        bool is_done = true;
        for (int k = 0; k < n_threads; k++) {
            is_done = is_done && states[k] == DONE;
            if (states[k] == AT_BARRIER)
                states[k] = READY;
        }
        if (is_done)
            return;
    }
}

static void run_grid(void (*of_thread)(void), const long *shape)
{
    char *const stacks = (char *)malloc((size_t)MOST * STACK_NBYTES);
    kernel = of_thread;
    gridDim = {(unsigned)shape[0], (unsigned)shape[1], (unsigned)shape[2]};
    blockDim = {(unsigned)shape[3], (unsigned)shape[4], (unsigned)shape[5]};
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x; x++) {
                blockIdx = {x, y, z};
                run_block(stacks);
            }
    free(stacks);
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
