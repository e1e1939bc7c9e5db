/* Parameter servers as queues: the event loop of plan/server_queues.py, which says what it means, in C.
 *
 * The order of all operations is that of the Python twin, so both give the same bits. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SEND = 0, ARRIVE = 1 };
enum { SYNC = 0, ASYNC = 1, SSP = 2 };

/* The fields are those of _Inputs in plan/native_queues.py, in the same order. */
typedef struct {
    int64_t workers, servers, hosts, messages, steps, mode, bound, prefetch;
    double nic, latency_s, batch_s, before_s, backward_s;
    const int64_t *home, *worker_host, *server_host;                 /* by message, worker, server */
    const double *ready_s, *encoded_s, *push_bytes, *pull_bytes, *take_s, *update_s, *reply_s; /* by message */
    const double *factors;                                           /* by step, then worker */
    double *begun, *done, *end, *late;                               /* results, by step, then worker */
} Inputs;

typedef struct {
    double time;
    uint64_t what; /* kind, worker, number: those of the same time are taken in this order */
} Event;

typedef struct {
    const Inputs *in;
    Event *heap;
    int64_t count;
    double *out, *into, *cpu;               /* when links and servers are free again */
    double *made, *free, *late;             /* by worker: its next batch, its last reply, that reply's server time */
    double *before;                         /* by worker: its last backward pass begins */
    int64_t *step, *open;                   /* by worker */
    int64_t *arrived;                       /* sync, by message: gradients that are there */
    int64_t *clock, *slowest, *at_slowest;  /* ssp: by message and worker; by message; how many have that clock */
    int64_t *held, *num_held;               /* ssp: workers that wait for the slowest, by message */
} Loop;

static int before(const Event *one, const Event *other) {
    return one->time < other->time || (one->time == other->time && one->what < other->what);
}

static void push(Loop *loop, double time, int kind, int64_t worker, int64_t number) {
    Event event = {time, (uint64_t)kind << 62 | (uint64_t)worker << 31 | (uint64_t)number};
    int64_t place = loop->count++;
    while (place > 0) {
        int64_t parent = (place - 1) / 2;
        if (!before(&event, &loop->heap[parent]))
            break;
        loop->heap[place] = loop->heap[parent];
        place = parent;
    }
    loop->heap[place] = event;
}

static Event pop(Loop *loop) {
    Event first = loop->heap[0], last = loop->heap[--loop->count];
    int64_t place = 0, child;
    while ((child = 2 * place + 1) < loop->count) {
        if (child + 1 < loop->count && before(&loop->heap[child + 1], &loop->heap[child]))
            child++;
        if (!before(&loop->heap[child], &last))
            break;
        loop->heap[place] = loop->heap[child];
        place = child;
    }
    loop->heap[place] = last;
    return first;
}

static double larger(double one, double other) {
    return other > one ? other : one;
}

static void send_next(Loop *loop, int64_t worker, int64_t number) {
    const Inputs *in = loop->in;
    double factor = in->factors[loop->step[worker] * in->workers + worker];
    push(loop, loop->before[worker] + factor * in->ready_s[number] + in->encoded_s[number], SEND, worker, number);
}

static void begin_step(Loop *loop, int64_t worker) {
    const Inputs *in = loop->in;
    int64_t step = loop->step[worker], here = step * in->workers + worker;
    double factor = in->factors[here], begin = loop->free[worker];
    if (in->batch_s > 0) {
        double room = step >= in->prefetch ? in->begun[here - in->prefetch * in->workers] : 0.0;
        loop->made[worker] = larger(loop->made[worker], room) + in->batch_s;
        begin = larger(begin, loop->made[worker]);
    }
    loop->before[worker] = begin + factor * in->before_s;
    in->begun[here] = begin;
    in->done[here] = loop->before[worker] + factor * in->backward_s + in->encoded_s[in->messages - 1];
    loop->open[worker] = in->messages;
    send_next(loop, worker, 0);
}

static double travel(Loop *loop, int64_t source, int64_t target, double num_bytes, double now) {
    if (source == target)
        return now;
    double seconds = num_bytes / loop->in->nic, begin = larger(now, loop->out[source]);
    double sent = loop->out[source] = begin + seconds;
    double received = loop->into[target] = larger(begin, loop->into[target]) + seconds;
    return larger(sent, received) + loop->in->latency_s;
}

static void reply(Loop *loop, int64_t worker, int64_t number, double arrived) {
    const Inputs *in = loop->in;
    int64_t server = in->home[number];
    double sent = loop->cpu[server] = larger(loop->cpu[server], arrived) + in->reply_s[number];
    double there = travel(loop, in->server_host[server], in->worker_host[worker], in->pull_bytes[number], sent);
    if (there > loop->free[worker]) {
        loop->free[worker] = there;
        loop->late[worker] = sent - arrived;
    }
    if (--loop->open[worker] > 0)
        return;
    int64_t here = loop->step[worker] * in->workers + worker;
    loop->free[worker] = in->end[here] = larger(loop->free[worker], in->done[here]);
    in->late[here] = loop->late[worker];
    if (++loop->step[worker] < in->steps)
        begin_step(loop, worker);
}

static void release(Loop *loop, int64_t worker, int64_t number, double now) {
    const Inputs *in = loop->in;
    int64_t *clock = loop->clock + number * in->workers, *held = loop->held + number * in->workers;
    int64_t first = loop->num_held[number]; /* only the new one may go, unless the slowest has moved on */
    held[loop->num_held[number]++] = worker;
    if (clock[worker]++ == loop->slowest[number] && --loop->at_slowest[number] == 0) {
        loop->slowest[number]++;
        for (int64_t each = 0; each < in->workers; each++)
            loop->at_slowest[number] += clock[each] == loop->slowest[number];
        first = 0;
    }
    int64_t count = loop->num_held[number], kept = first, leaving = 0;
    int64_t *go = loop->held + in->messages * in->workers; /* room for one message's workers */
    for (int64_t place = first; place < count; place++) {
        int64_t each = held[place];
        if (loop->slowest[number] > clock[each] - 1 - in->bound)
            go[leaving++] = each;
        else
            held[kept++] = each;
    }
    loop->num_held[number] = kept;
    for (int64_t place = 0; place < leaving; place++)
        reply(loop, go[place], number, now);
}

static void arrive(Loop *loop, int64_t worker, int64_t number, double now) {
    const Inputs *in = loop->in;
    int64_t server = in->home[number];
    loop->cpu[server] = larger(loop->cpu[server], now) + in->take_s[number];
    if (in->mode == SYNC) {
        if (++loop->arrived[number] < in->workers)
            return;
        loop->arrived[number] = 0;
        loop->cpu[server] += in->update_s[number];
        for (int64_t each = 0; each < in->workers; each++)
            reply(loop, each, number, now);
        return;
    }
    loop->cpu[server] += in->update_s[number];
    if (in->mode == SSP)
        release(loop, worker, number, now);
    else
        reply(loop, worker, number, now);
}

static void run(Loop *loop) {
    const Inputs *in = loop->in;
    const uint64_t low = ((uint64_t)1 << 31) - 1;
    for (int64_t worker = 0; worker < in->workers; worker++)
        begin_step(loop, worker);
    while (loop->count > 0) {
        Event event = pop(loop);
        int64_t worker = (int64_t)(event.what >> 31 & low), number = (int64_t)(event.what & low);
        if (event.what >> 62 == ARRIVE) {
            arrive(loop, worker, number, event.time);
            continue;
        }
        if (number + 1 < in->messages)
            send_next(loop, worker, number + 1);
        int64_t source = in->worker_host[worker], target = in->server_host[in->home[number]];
        double there = travel(loop, source, target, in->push_bytes[number], event.time);
        push(loop, there, ARRIVE, worker, number);
    }
}

/* Simulates all steps. Returns 0, or -1 if there is not enough memory. */
int server_queues(const Inputs *in) {
    int64_t workers = in->workers, messages = in->messages, per_pair = in->mode == SSP ? messages * workers : 0;
    size_t doubles = (size_t)(2 * in->hosts + in->servers + 4 * workers);
    size_t counts = (size_t)(2 * workers + 4 * messages + 2 * per_pair + workers);
    double *times = calloc(doubles, sizeof(double));
    int64_t *numbers = calloc(counts, sizeof(int64_t));
    /* A worker has one message to send, and each of its messages on the way once. */
    Event *heap = malloc((size_t)(workers * (messages + 1)) * sizeof(Event));
    int failed = times == NULL || numbers == NULL || heap == NULL;
    if (!failed) {
        Loop loop = {.in = in, .heap = heap};
        loop.out = times;
        loop.into = loop.out + in->hosts;
        loop.cpu = loop.into + in->hosts;
        loop.made = loop.cpu + in->servers;
        loop.free = loop.made + workers;
        loop.late = loop.free + workers;
        loop.before = loop.late + workers;
        loop.step = numbers;
        loop.open = loop.step + workers;
        loop.arrived = loop.open + workers;
        loop.slowest = loop.arrived + messages;
        loop.at_slowest = loop.slowest + messages;
        loop.num_held = loop.at_slowest + messages;
        loop.clock = loop.num_held + messages;
        loop.held = loop.clock + per_pair;
        for (int64_t number = 0; number < messages; number++)
            loop.at_slowest[number] = workers;
        run(&loop);
    }
    free(times);
    free(numbers);
    free(heap);
    return failed ? -1 : 0;
}
