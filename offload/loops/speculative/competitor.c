/* A loop in order on a thread of its own, in slices, until it has ended or nobody wants it any more.
 *
 * Theory of operation
 * -------------------
 * The thread lives as long as one run. It takes trips in slices of about `slice_ns`, as the slices before tell, and
 * looks at `cancel` before each. A slice that finds something wrong writes the record, and is the last one. Python looks
 * at `ended` when it likes and joins once; no lock is needed, since each word is written by one side.
 * Signals are the program's: the thread blocks all of them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

typedef void (*Kernel)(const void *arguments, int64_t begin, int64_t end, int64_t chunk, int64_t worker);

typedef struct { /* as `offload.loops.speculative.competitor` has it: words of 8 bytes */
    Kernel kernel;
    const void *arguments;
    const int64_t *record; /* [0] is not 0 once something is wrong */
    int64_t trips, slice_ns;
    int64_t cancel;       /* written by Python */
    int64_t n_done;       /* trips */
    int64_t ns, ended;
    pthread_t thread;
} Run;

enum { MOST_GROWTH = 8 };

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Return how many trips the next slice has, of one that had `size` and took `ns`. */
static int64_t next_size(int64_t size, int64_t ns, int64_t slice_ns)
{
    double fits = (double)size * (double)slice_ns / (double)(ns > 0 ? ns : 1);
    double most = (double)size * MOST_GROWTH;
    fits = fits < most ? fits : most;
    return fits < 1 ? 1 : fits > 1e15 ? (int64_t)1e15 : (int64_t)fits;
}

static void *carry_out(void *argument)
{
    Run *run = argument;
    int64_t begun_ns = now_ns(), done = 0, size = 1;
#ifdef __linux__
    prctl(PR_SET_NAME, "offload-serial", 0, 0, 0); /* as debuggers have it, and tests */
#endif
    while (done < run->trips && !__atomic_load_n(&run->cancel, __ATOMIC_ACQUIRE) && !run->record[0]) {
        int64_t end = run->trips - done < size ? run->trips : done + size, before_ns = now_ns();
        run->kernel(run->arguments, done, end, 0, 0);
        size = next_size(end - done, now_ns() - before_ns, run->slice_ns);
        done = end;
        __atomic_store_n(&run->n_done, done, __ATOMIC_RELAXED);
    }
    run->ns = now_ns() - begun_ns;
    __atomic_store_n(&run->ended, 1, __ATOMIC_RELEASE);
    return 0;
}

/* Return 0, or an error number where no thread can be had. */
int64_t offload_competitor_start(Run *run)
{
    sigset_t all, before;
    int error;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&run->thread, 0, carry_out, run);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    return error;
}

/* Wait until the thread is gone; once for each start. */
void offload_competitor_join(Run *run) { pthread_join(run->thread, 0); }
