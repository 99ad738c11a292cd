/* Shared by all peers' programs, whatever carries their messages: memory, binding, and sampling.
 *
 * The steps are those of benches/src/measure.rs: warm up, measure the time of a round, run as
 * many rounds as planned but no longer than LIMIT seconds.
 *
 * A file that includes this must define `peer_request` before, and the four functions declared
 * below.
 */
#ifndef PORTOLAN_SAMPLING_H
#define PORTOLAN_SAMPLING_H

/* Tags, the size of a page, and the first argument that is a plan. */
enum { MESSAGE = 1, ANSWER = 2, WAITING = 1000, PAGE = 4096, PLANS = 7 };

/* The state of a rank during a measurement. */
struct peer {
    int rank, size;
    int partner;      /* the rank on the other side, or -1 */
    int starts;       /* whether this rank starts, and takes the time */
    int window;       /* messages in a window */
    int buffers;      /* used in turn by a window's messages, in each direction */
    int threads;      /* threads of a rank */
    double limit;     /* longest time of a size, in seconds */
    int alloc;        /* whether the buffers are the library's */
    double begun;     /* when the job was started, in seconds of CLOCK_MONOTONIC */
    size_t plan;      /* size in the plan: a length, or how many entries wait */
    size_t bytes;     /* length of a message */
    char *send, *receive;   /* the first buffers */
    void *allocated[2];     /* what the library allocated for them */
    size_t stride, area;    /* distance between buffers; size of all in one direction */
    peer_request *requests; /* room for two windows */
    void *state;            /* the program's own */
};

/* Whose figures count, and how they are combined. */
enum peer_counts { PEER_STARTERS, PEER_ANSWERERS, PEER_ALL };
enum peer_pool { PEER_MEAN, PEER_SUM, PEER_MOST };

/* One program. */
struct peer_program {
    enum peer_counts counts;
    enum peer_pool pool;
    /* Either: repeats a round, and computes the figure from the time of these rounds ... */
    void (*run)(struct peer *peer, long rounds);
    double (*value)(const struct peer *peer, double seconds, long rounds);
    /* ... or: measures the figure directly. */
    double (*direct)(struct peer *peer, long planned, long warm_up, long *rounds);
    /* Called before and after each size; may be NULL. */
    void (*before)(struct peer *peer);
    void (*after)(struct peer *peer);
    int sizes_are_counts; /* messages of 8 bytes, whatever the plan says */
    int threaded;         /* needs MPI_THREAD_MULTIPLE */
};

/* Prints an error and ends the job. */
static void peer_fail(const char *what, const char *argument);
/* Waits until all ranks are there. */
static void peer_gather(struct peer *peer);
/* Returns the number that rank 0 passes. */
static long peer_agree(struct peer *peer, long number);
/* The time in seconds. */
static double peer_clock(void);

static void *peer_memory(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        peer_fail("no memory", "choose something smaller");
    return memory;
}

/* Memory that begins at a page boundary and has been touched; at least one byte. */
static char *peer_buffer(size_t bytes, int fill)
{
    void *memory = NULL;
    if (posix_memalign(&memory, PAGE, bytes ? bytes : 1) != 0)
        peer_fail("no memory for a message", "choose a smaller one");
    memset(memory, fill, bytes ? bytes : 1);
    return memory;
}

static inline double peer_monotonic(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Binds a rank to its entry of PEER_PROCESSORS, if that is set: "0,1,0,1", or "0+2,1+3", where
 * each rank gets the two hardware threads of a core. */
static void peer_place(int rank)
{
    const char *list = getenv("PEER_PROCESSORS");
    for (int at = 0; list && at < rank; at++) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (!list)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    char *end = NULL;
    for (const char *at = list; at == list || *end == '+'; at = end + 1)
        CPU_SET(strtol(at, &end, 10), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        peer_fail("cannot run on this processor", list);
}

static double peer_timed(struct peer *peer, const struct peer_program *program, long rounds)
{
    peer_gather(peer);
    double begun = peer_clock();
    program->run(peer, rounds);
    return peer_clock() - begun;
}

/* The number of rounds of `each` seconds that fit into `limit`, as rank 0 measures it: at most
 * `planned`, and none if one round takes more than four times the limit. */
static long peer_affordable(struct peer *peer, long planned, double each, double limit)
{
    double room = limit / (each > 1e-9 ? each : 1e-9);
    long rounds = room < (double)planned ? (long)room : planned;
    if (rounds < 1)
        rounds = planned < 1 || room < 0.25 ? 0 : 1;
    return peer_agree(peer, rounds);
}

/* Measures up to `planned` rounds. Returns their time in seconds, and their number in `*rounds`. */
static double peer_rounds(struct peer *peer, const struct peer_program *program, long planned,
                          long warm_up, long *rounds)
{
    /* Even the warm-up may take too long, and ranks may fall out of step. So it grows only while
     * it is short. */
    double last = peer_timed(peer, program, 1), spent = last;
    long warm = 1, timed = 1;
    for (;;) {
        long more = 2 * warm < warm_up ? 2 * warm : warm_up;
        int enough = warm >= warm_up || spent > peer->limit / 2;
        more = peer_affordable(peer, enough ? 0 : more, last / (double)timed, peer->limit / 4);
        if (more == 0)
            break;
        last = peer_timed(peer, program, more);
        timed = more;
        warm += more;
        spent += last;
    }
    *rounds = peer_affordable(peer, planned, last / (double)timed, peer->limit);
    if (*rounds == 0) {
        /* The last round of the warm-up is the sample. */
        *rounds = timed;
        return last;
    }
    return peer_timed(peer, program, *rounds);
}

/* Buffers of one direction in memory that the library allocates: at a page boundary, touched. */
static char *peer_allocate(struct peer *peer, int direction, int fill);

/* Prints the figure of a size, in the form that `portolan bench` reads. */
static void peer_say(size_t size, double value, long rounds)
{
    printf("portolan-sample %zu %.9g %ld\n", size, value, rounds);
    fflush(stdout);
}

/* Prints why there is no figure of a size, in the form that `portolan bench` reads. */
static void peer_say_why(unsigned long long size, const char *reason)
{
    printf("portolan-no-sample %llu %s\n", size, reason);
    fflush(stdout);
}

/* Reads the arguments that describe the job; peer.h lists them. */
static void peer_arguments(struct peer *peer, int argc, char **argv)
{
    if (argc <= PLANS)
        peer_fail("usage",
                  "PROGRAM WINDOW BUFFERS LIMIT THREADS BEGUN ALLOC BYTES:ROUNDS:WARM_UP...");
    int half = peer->size / 2;
    peer->starts = peer->rank < half;
    peer->partner = peer->rank < half       ? peer->rank + half
                    : peer->rank < 2 * half ? peer->rank - half
                                            : -1;
    peer->window = atoi(argv[1]);
    peer->buffers = atoi(argv[2]);
    peer->limit = atof(argv[3]);
    peer->threads = atoi(argv[4]);
    peer->begun = atof(argv[5]) * 1e-9;
    peer->alloc = atoi(argv[6]);
    if (peer->window < 1 || peer->buffers < 1 || peer->threads < 1)
        peer_fail("not a window or a number of buffers or threads", argv[1]);
    peer->requests = peer_memory(2 * (size_t)peer->window * sizeof *peer->requests);
}

/* Reads one BYTES:ROUNDS:WARM_UP argument, and allocates buffers for it. Returns 0 if the program
 * cannot measure that size: rank 0 then prints the reason in place of the figure, and the other
 * sizes are measured. */
static int peer_plan(struct peer *peer, const struct peer_program *program, const char *plan,
                     long *planned, long *warm_up)
{
    unsigned long long size;
    if (sscanf(plan, "%llu:%ld:%ld", &size, planned, warm_up) != 3 || *planned < 1 || *warm_up < 1)
        peer_fail("not of the form BYTES:ROUNDS:WARM_UP", plan);
    if (size > INT_MAX) {
        if (peer->rank == 0)
            peer_say_why(size, "longer than a message of MPI with int counts");
        return 0;
    }
    peer->plan = size;
    peer->bytes = program->sizes_are_counts ? 8 : size;
    peer->stride = ((peer->bytes ? peer->bytes : 1) + PAGE - 1) / PAGE * PAGE;
    peer->area = peer->stride * (size_t)peer->buffers;
    if (peer->alloc) {
        peer->send = peer_allocate(peer, 0, peer->rank);
        peer->receive = peer_allocate(peer, 1, 0);
    } else {
        peer->send = peer_buffer(peer->area, peer->rank);
        peer->receive = peer_buffer(peer->area, 0);
    }
    return 1;
}

/* The offset of the buffer after the one at `offset`; after the last comes the first. */
static inline size_t peer_next(const struct peer *peer, size_t offset)
{
    offset += peer->stride;
    return offset == peer->area ? 0 : offset;
}

#endif
