/* What the peers' programs share: arguments, sampling and output.
 *
 * Each program is called with the same arguments as ours,
 *
 *     PROGRAM WINDOW LIMIT BYTES:ROUNDS:WARM_UP...
 *
 * and rank 0 prints one line per size: "portolan-sample BYTES VALUE ROUNDS". The steps are those of
 * benches/src/measure.rs: warm up, see how long a round takes, take as many rounds as planned but no
 * longer than LIMIT seconds, and put the ranks' values together. With PEER_DEPTH defined, BYTES is the
 * number of receives that wait while messages of 8 bytes pass.
 */
#ifndef PORTOLAN_PEER_H
#define PORTOLAN_PEER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 1, ANSWER = 2, WAITING = 1000, PAGE = 4096 };

/* What a rank knows while it measures. */
struct peer {
    int rank, size;
    int partner;      /* the rank on the other side, or -1 */
    int starts;       /* whether this rank starts, and takes the time */
    int window;       /* messages in a window */
    size_t bytes;     /* length of a message */
    char *send, *receive;
    MPI_Request *requests; /* room for two windows */
};

/* Repeats a pattern. */
typedef void (*peer_pattern)(const struct peer *peer, long rounds);
/* What it means that so many rounds took that many seconds. */
typedef double (*peer_value)(const struct peer *peer, double seconds, long rounds);

/* How the values of the ranks become one. */
enum peer_sum { PEER_MEAN, PEER_SUM };

static void peer_fail(const char *what, const char *argument)
{
    fprintf(stderr, "%s: %s\n", what, argument);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

/* At the beginning of a page, touched; room for a byte at least. */
static char *peer_buffer(size_t bytes, int fill)
{
    void *memory = NULL;
    if (posix_memalign(&memory, PAGE, bytes ? bytes : 1) != 0)
        peer_fail("no memory for a message", "choose a smaller one");
    memset(memory, fill, bytes ? bytes : 1);
    return memory;
}

/* Puts this rank on its entry of PEER_PROCESSORS, such as "0,1,0,1", if that is set. */
static void peer_place(const struct peer *peer)
{
    const char *list = getenv("PEER_PROCESSORS");
    for (int at = 0; list && at < peer->rank; at++) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    if (!list)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(atoi(list), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        peer_fail("cannot run on this processor", list);
}

static double peer_timed(const struct peer *peer, peer_pattern pattern, long rounds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    pattern(peer, rounds);
    return MPI_Wtime() - begun;
}

/* As many rounds of `each` seconds as there is time for, as rank 0 sees it: one at least. */
static long peer_affordable(long planned, double each, double limit)
{
    double room = limit / (each > 1e-9 ? each : 1e-9);
    long rounds = room < (double)planned ? (long)room : planned;
    if (rounds < 1)
        rounds = 1;
    MPI_Bcast(&rounds, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return rounds;
}

static void peer_sample(struct peer *peer, const char *plan, double limit, int paired,
                        peer_pattern pattern, peer_value value, enum peer_sum sum)
{
    unsigned long long bytes;
    long planned, warm_up;
    if (sscanf(plan, "%llu:%ld:%ld", &bytes, &planned, &warm_up) != 3 || planned < 1 || warm_up < 1)
        peer_fail("not of the form BYTES:ROUNDS:WARM_UP", plan);
    if (bytes > INT_MAX)
        peer_fail("longer than a message of MPI with int counts", plan);
    peer->bytes = bytes;
#ifdef PEER_DEPTH
    peer->bytes = 8;
    char aside[8];
    MPI_Request *waiting = malloc((bytes + 1) * sizeof *waiting);
    if (!waiting)
        peer_fail("no memory for so many receives", plan);
    for (int i = 0; i < (int)bytes && peer->partner >= 0; i++)
        MPI_Irecv(aside, sizeof aside, MPI_BYTE, peer->partner, WAITING + i, MPI_COMM_WORLD,
                  &waiting[i]);
#endif
    peer->send = peer_buffer(peer->bytes, peer->rank);
    peer->receive = peer_buffer(peer->bytes, 0);

    /* Even the warm-up may be too long. */
    double each = peer_timed(peer, pattern, 1);
    warm_up = peer_affordable(warm_up, each, limit / 4);
    each = peer_timed(peer, pattern, warm_up) / (double)warm_up;
    long rounds = peer_affordable(planned, each, limit);
    double seconds = peer_timed(peer, pattern, rounds);

    double mine[2] = {0, 0}, all[2];
    if (peer->starts || !paired) {
        mine[0] = value(peer, seconds, rounds);
        mine[1] = 1;
    }
    MPI_Reduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (peer->rank == 0) {
        double result = sum == PEER_MEAN ? all[0] / all[1] : all[0];
        printf("portolan-sample %llu %.9g %ld\n", bytes, result, rounds);
        fflush(stdout);
    }
#ifdef PEER_DEPTH
    for (int i = 0; i < (int)bytes && peer->partner >= 0; i++) {
        MPI_Cancel(&waiting[i]);
        MPI_Wait(&waiting[i], MPI_STATUS_IGNORE);
    }
    free(waiting);
#endif
    free(peer->send);
    free(peer->receive);
}

/* The whole of a program. */
static int peer_main(int argc, char **argv, int paired, peer_pattern pattern, peer_value value,
                     enum peer_sum sum)
{
    struct peer peer = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    peer_place(&peer);
    if (argc < 4)
        peer_fail("usage", "PROGRAM WINDOW LIMIT BYTES:ROUNDS:WARM_UP...");

    int half = peer.size / 2;
    peer.starts = peer.rank < half;
    peer.partner = peer.rank < half       ? peer.rank + half
                   : peer.rank < 2 * half ? peer.rank - half
                                          : -1;
    peer.window = atoi(argv[1]);
    if (peer.window < 1)
        peer_fail("not a window", argv[1]);
    peer.requests = malloc(2 * (size_t)peer.window * sizeof *peer.requests);
    if (!peer.requests)
        peer_fail("no memory for a window of requests", argv[1]);
    double limit = atof(argv[2]);

    for (int at = 3; at < argc; at++)
        peer_sample(&peer, argv[at], limit, paired, pattern, value, sum);
    free(peer.requests);
    MPI_Finalize();
    return 0;
}

#endif
