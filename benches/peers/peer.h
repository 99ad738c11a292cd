/* Shared by the peers' programs over MPI: arguments, sampling and output.
 *
 * Each program has the same arguments as Portolan's ranks,
 *
 *     PROGRAM WINDOW BUFFERS LIMIT THREADS BEGUN ALLOC BYTES:ROUNDS:WARM_UP...
 *
 * and rank 0 prints one line per size: "portolan-sample BYTES VALUE ROUNDS", or, where it cannot
 * measure that size, "portolan-no-sample BYTES REASON". The steps are those of
 * benches/src/measure.rs: warm up, measure the time of a round, run as many rounds as planned but
 * no longer than LIMIT seconds, and combine the ranks' figures. BEGUN is the moment at which the
 * job was started, in nanoseconds of CLOCK_MONOTONIC. If ALLOC is 1, the buffers are memory of
 * MPI_Alloc_mem.
 */
#ifndef PORTOLAN_PEER_H
#define PORTOLAN_PEER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef MPI_Request peer_request;

#include "sampling.h"

static void peer_fail(const char *what, const char *argument)
{
    fprintf(stderr, "%s: %s\n", what, argument);
    int begun = 0;
    MPI_Initialized(&begun);
    if (!begun)
        exit(2);
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static char *peer_allocate(struct peer *peer, int direction, int fill)
{
    if (MPI_Alloc_mem((MPI_Aint)(peer->area + PAGE), MPI_INFO_NULL, &peer->allocated[direction]) != MPI_SUCCESS)
        peer_fail("no memory for a message", "choose a smaller one");
    char *memory = peer->allocated[direction];
    memory += (PAGE - (uintptr_t)memory % PAGE) % PAGE;
    memset(memory, fill, peer->area);
    return memory;
}

static void peer_gather(struct peer *peer)
{
    (void)peer;
    MPI_Barrier(MPI_COMM_WORLD);
}

static long peer_agree(struct peer *peer, long number)
{
    (void)peer;
    MPI_Bcast(&number, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return number;
}

static double peer_clock(void)
{
    return MPI_Wtime();
}

static void peer_sample(struct peer *peer, const struct peer_program *program, const char *plan)
{
    long planned, warm_up, rounds = 1;
    if (!peer_plan(peer, program, plan, &planned, &warm_up))
        return;
    if (program->before)
        program->before(peer);

    double value;
    if (program->direct) {
        value = program->direct(peer, planned, warm_up, &rounds);
    } else {
        double seconds = peer_rounds(peer, program, planned, warm_up, &rounds);
        value = program->value(peer, seconds, rounds);
    }
    int paired = peer->partner >= 0;
    int counts = program->counts == PEER_ALL || (paired && (program->counts == PEER_STARTERS) == peer->starts);
    double mine[2] = {counts ? value : 0, counts}, sum[2], most;
    MPI_Reduce(mine, sum, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (peer->rank == 0) {
        double result = program->pool == PEER_MEAN  ? sum[0] / sum[1]
                        : program->pool == PEER_SUM ? sum[0]
                                                    : most;
        peer_say(peer->plan, result, rounds);
    }
    if (program->after)
        program->after(peer);
    if (peer->alloc) {
        MPI_Free_mem(peer->allocated[0]);
        MPI_Free_mem(peer->allocated[1]);
    } else {
        free(peer->send);
        free(peer->receive);
    }
}

/* Binds the rank before MPI_Init, as Portolan's launcher does, so that memory that MPI touches
 * there is close to the processor that uses it. The rank's number comes from the launchers'
 * variables; after MPI_Init, MPI's number decides. */
static void peer_place_early(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        const char *rank = getenv(names[at]);
        if (rank) {
            peer_place(atoi(rank));
            return;
        }
    }
}

/* The main function of each program. */
static int peer_main(int argc, char **argv, const struct peer_program *program)
{
    struct peer peer = {0};
    int wanted = program->threaded ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, level;
    peer_place_early();
    MPI_Init_thread(&argc, &argv, wanted, &level);
    if (level < wanted)
        peer_fail("this MPI was built without", "MPI_THREAD_MULTIPLE");
    MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
    peer_place(peer.rank);
    peer_arguments(&peer, argc, argv);
    for (int at = PLANS; at < argc; at++)
        peer_sample(&peer, program, argv[at]);
    free(peer.requests);
    MPI_Finalize();
    return 0;
}

#endif
