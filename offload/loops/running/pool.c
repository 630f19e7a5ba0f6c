/* Loop threads: the chunks of a loop on a few threads of this process, without Python.
 *
 * Theory of operation
 * -------------------
 * One job runs at a time. Its open chunks and how many threads may take part are one word, `ticket`; a thread takes a
 * chunk by one compare-and-swap that lowers the number of open ones. A thread that was away for any time does no harm:
 * if its swap succeeds, the word says what is true now, and the job cannot end, nor `job` change, before that chunk is
 * counted in `done`. So helpers are never waited for, only chunks are.
 * A helper that finds nothing spins for SPIN_NS and then sleeps. It says so in `asleep` before it looks at the ticket a
 * last time; who publishes a job writes the ticket before it looks at `asleep` (both sequentially consistent).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

typedef void (*Kernel)(const void *arguments, int64_t begin, int64_t end, int64_t chunk, int64_t worker);

typedef struct {
    Kernel kernel;
    const void *arguments;
    int64_t trips, n_chunks;
    const int64_t *bounds; /* of chunks: where each begins, and where the last ends; 0: they are equal */
} Job;

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    int asleep;
} __attribute__((aligned(128))) Sleeper;

enum { MOST_HELPERS = 1023, SPIN_NS = 50000 };

static Job job;
static uint64_t ticket __attribute__((aligned(128)));  /* threads << 32 | open chunks */
static int64_t done __attribute__((aligned(128)));     /* chunks that have ended */
static int busy;
static int64_t n_helpers;                /* changed by who holds `busy` */
static Sleeper sleepers[MOST_HELPERS + 1]; /* [0] is the thread that runs the job */

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t boundary(const Job *of, int64_t chunk)
{
    if (of->bounds)
        return of->bounds[chunk];
    return (int64_t)((__int128)of->trips * chunk / of->n_chunks);
}

static void run_chunk(const Job *of, int64_t chunk, int64_t worker)
{
    of->kernel(of->arguments, boundary(of, chunk), boundary(of, chunk + 1), chunk, worker);
}

static int is_open_to(uint64_t word, int64_t worker)
{
    return (uint32_t)word != 0 && worker < (int64_t)(word >> 32);
}

static void wake(Sleeper *sleeper)
{
    if (!__atomic_load_n(&sleeper->asleep, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&sleeper->mutex);
    pthread_cond_signal(&sleeper->condition);
    pthread_mutex_unlock(&sleeper->mutex);
}

/* Run chunks while there are open ones, and return how many; whoever ends the last one wakes the thread that waits. */
static int64_t take_part(int64_t worker)
{
    int64_t n = 0;
    uint64_t word = __atomic_load_n(&ticket, __ATOMIC_ACQUIRE);
    while (is_open_to(word, worker)) {
        if (!__atomic_compare_exchange_n(&ticket, &word, word - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            continue;
        int64_t n_chunks = job.n_chunks;
        run_chunk(&job, n_chunks - (int64_t)(uint32_t)word, worker);
        if (__atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST) == n_chunks)
            wake(&sleepers[0]);
        word = __atomic_load_n(&ticket, __ATOMIC_ACQUIRE);
        n++;
    }
    return n;
}

static int helper_may_go(int64_t worker)
{
    return is_open_to(__atomic_load_n(&ticket, __ATOMIC_SEQ_CST), worker);
}

static int caller_may_go(int64_t n_chunks)
{
    return __atomic_load_n(&done, __ATOMIC_SEQ_CST) == n_chunks;
}

static void wait_until(int (*may_go)(int64_t), int64_t argument, Sleeper *sleeper)
{
    int64_t until = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (may_go(argument))
                return;
            relax();
        }
    } while (now_ns() < until);
    pthread_mutex_lock(&sleeper->mutex);
    __atomic_store_n(&sleeper->asleep, 1, __ATOMIC_SEQ_CST);
    while (!may_go(argument))
        pthread_cond_wait(&sleeper->condition, &sleeper->mutex);
    __atomic_store_n(&sleeper->asleep, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&sleeper->mutex);
}

static void *help(void *worker)
{
    for (;;) {
        wait_until(helper_may_go, (int64_t)(intptr_t)worker, &sleepers[(intptr_t)worker]);
        take_part((int64_t)(intptr_t)worker);
    }
    return 0;
}

/* A forked child has one thread: whatever the others were doing is over. */
static void begin_anew(void)
{
    n_helpers = 0;
    ticket = 0;
    busy = 0;
    for (int i = 0; i <= MOST_HELPERS; i++) {
        pthread_mutex_init(&sleepers[i].mutex, 0);
        pthread_cond_init(&sleepers[i].condition, 0);
        sleepers[i].asleep = 0;
    }
}

__attribute__((constructor)) static void begin(void)
{
    begin_anew();
    pthread_atfork(0, 0, begin_anew);
}

/* Signals are the program's: a helper would interrupt nothing by one. Where no thread can be had, fewer do the work. */
static void have_helpers(int64_t n)
{
    sigset_t all, before;
    if (n_helpers >= n)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; n_helpers < n; n_helpers++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, help, (void *)(intptr_t)(n_helpers + 1)) != 0)
            break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, 0);
}

/* Return the time that one thread would have taken, as far as the caller's own chunks tell. */
static int64_t share(int64_t n_chunks, int64_t n_threads)
{
    int64_t begin_ns, own_ns, n_own;
    have_helpers(n_threads - 1);
    __atomic_store_n(&done, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&ticket, (uint64_t)n_threads << 32 | (uint64_t)n_chunks, __ATOMIC_SEQ_CST);
    for (int64_t worker = 1; worker < n_threads && worker <= n_helpers; worker++)
        wake(&sleepers[worker]);
    begin_ns = now_ns();
    n_own = take_part(0);
    own_ns = now_ns() - begin_ns;
    wait_until(caller_may_go, n_chunks, &sleepers[0]);
    return n_own ? own_ns * n_chunks / n_own : (now_ns() - begin_ns) * n_threads;
}

/* Run chunk c over trips [trips * c / n_chunks, trips * (c + 1) / n_chunks) for each c, or over [bounds[c],
 * bounds[c + 1]), and return the nanoseconds that they take one thread. Where another loop has the threads, the caller runs all chunks. `worker` is below n_threads. */
int64_t offload_pool_run(Kernel kernel, const void *arguments, int64_t trips, int64_t n_chunks, int64_t n_threads,
                         const int64_t *bounds)
{
    int64_t begin_ns = now_ns(), ns;
    Job asked = {kernel, arguments, trips, n_chunks, bounds};
    if (n_threads > n_chunks)
        n_threads = n_chunks;
    if (n_threads > MOST_HELPERS + 1)
        n_threads = MOST_HELPERS + 1;
    if (n_threads > 1 && n_chunks <= UINT32_MAX && !__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE)) {
        job = asked;
        ns = share(n_chunks, n_threads);
        __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    } else {
        for (int64_t chunk = 0; chunk < n_chunks; chunk++)
            run_chunk(&asked, chunk, 0);
        ns = now_ns() - begin_ns;
    }
    return ns;
}
