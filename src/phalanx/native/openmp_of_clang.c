/* What clang's OpenMP code calls, on top of libgomp, so that it shares the threads that PyTorch on Linux has.

   gcc's code calls GOMP_… of libgomp, and PyTorch's Linux wheels bring that. clang's calls __kmpc_… of LLVM's own library,
   which would be a second team of threads. Only what the loops of this folder need is here: `parallel`, `for` with a
   static or dynamic schedule, barriers. The names and numbers are LLVM's interface (openmp/runtime/src/kmp.h). */

#if defined(__clang__) && defined(__linux__)

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#define HIDDEN __attribute__((visibility("hidden")))
enum { MOST = 40 };                /* variables that a region may share */
enum { STATIC_CHUNKED = 33 };      /* of LLVM's schedules; any other static one is a share for each thread */

void GOMP_parallel(void (*task)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);
_Bool GOMP_loop_dynamic_start(long start, long end, long step, long chunk, long *from, long *to);
_Bool GOMP_loop_dynamic_next(long *from, long *to);
void GOMP_loop_end_nowait(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

typedef void Region(int32_t *thread, int32_t *bound, ...);
typedef struct {
    Region *region;
    void *shared[MOST];
} Call;

static _Thread_local int32_t wanted; /* threads of the next region; 0: as many as usual */
static _Thread_local struct {
    int64_t first, last, step, chunk;
    int started;
} loop; /* the dynamic one that this thread is in */

static void run(void *data) {
    Call *call = data;
    void **s = call->shared;
    int32_t thread = omp_get_thread_num(), bound = 0;
    /* A region takes as many as it has; on x86-64 and aarch64 more do no harm, since the caller takes them back. */
    call->region(&thread, &bound, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9], s[10], s[11], s[12], s[13],
                 s[14], s[15], s[16], s[17], s[18], s[19], s[20], s[21], s[22], s[23], s[24], s[25], s[26], s[27], s[28],
                 s[29], s[30], s[31], s[32], s[33], s[34], s[35], s[36], s[37], s[38], s[39]);
}

HIDDEN void __kmpc_fork_call(void *where, int32_t count, Region *region, ...) {
    (void)where;
    Call call = {.region = region};
    va_list shared;
    if (count > MOST) abort(); /* the compiler's code would read what is not there */
    va_start(shared, region);
    for (int32_t i = 0; i < count; i++) call.shared[i] = va_arg(shared, void *);
    va_end(shared);
    unsigned threads = (unsigned)wanted;
    wanted = 0;
    GOMP_parallel(run, &call, threads, 0);
}

HIDDEN int32_t __kmpc_global_thread_num(void *where) {
    (void)where;
    return omp_get_thread_num();
}

HIDDEN void __kmpc_push_num_threads(void *where, int32_t thread, int32_t threads) {
    (void)where, (void)thread;
    wanted = threads;
}

HIDDEN void __kmpc_barrier(void *where, int32_t thread) {
    (void)where, (void)thread;
    GOMP_barrier();
}

/* The iterations [*lower, *upper] become those of this thread; no iterations where *lower > *upper. */
#define STATIC_LOOP(KIND, NUMBER)                                                                                     \
    HIDDEN void __kmpc_for_static_init_##KIND(void *where, int32_t thread, int32_t schedule, int32_t *is_last,        \
                                              NUMBER *lower, NUMBER *upper, NUMBER *stride, NUMBER step,              \
                                              NUMBER chunk) {                                                         \
        int64_t me = omp_get_thread_num(), team = omp_get_num_threads();                                              \
        int64_t from = (int64_t)*lower, by = (int64_t)step, count = ((int64_t)*upper - from) / by + 1;                \
        int64_t each = schedule == STATIC_CHUNKED ? (chunk > 0 ? (int64_t)chunk : 1) : (count + team - 1) / team;     \
        int64_t begin = me * each, end = begin + each;                                                                \
        (void)where, (void)thread;                                                                                    \
        if (schedule != STATIC_CHUNKED && end > count) end = count;                                                   \
        if (schedule != STATIC_CHUNKED && begin > count) begin = count;                                               \
        *is_last = begin < count && end >= count;                                                                     \
        *stride = (NUMBER)(team * each * by);                                                                         \
        *lower = (NUMBER)(from + begin * by);                                                                         \
        *upper = (NUMBER)(from + (end - 1) * by);                                                                     \
    }
STATIC_LOOP(4, int32_t)
STATIC_LOOP(8, int64_t)
STATIC_LOOP(8u, uint64_t)

HIDDEN void __kmpc_for_static_fini(void *where, int32_t thread) { (void)where, (void)thread; }

HIDDEN void __kmpc_dispatch_init_8(void *where, int32_t thread, int32_t schedule, int64_t lower, int64_t upper,
                                   int64_t step, int64_t chunk) {
    (void)where, (void)thread, (void)schedule;
    loop.first = lower, loop.last = upper, loop.step = step, loop.chunk = chunk > 0 ? chunk : 1, loop.started = 0;
}

/* The next iterations of this thread; 0 where there are no more. */
HIDDEN int32_t __kmpc_dispatch_next_8(void *where, int32_t thread, int32_t *is_last, int64_t *lower, int64_t *upper,
                                      int64_t *stride) {
    (void)where, (void)thread;
    long from, to;
    _Bool more = loop.started ? GOMP_loop_dynamic_next(&from, &to)
                              : GOMP_loop_dynamic_start(loop.first, loop.last + loop.step, loop.step, loop.chunk, &from, &to);
    loop.started = 1;
    if (!more) {
        GOMP_loop_end_nowait(); /* where a barrier is due, clang calls it */
        return 0;
    }
    *lower = from, *upper = to - loop.step, *stride = loop.step;
    *is_last = to == loop.last + loop.step;
    return 1;
}

HIDDEN void __kmpc_dispatch_deinit(void *where, int32_t thread) { (void)where, (void)thread; }

#else
typedef int nothing_to_compile;
#endif
