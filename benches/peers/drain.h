/* Posts receives with a tag each, and sends their messages in some order:
 * benches/src/pattern/steps.rs, `drain`. */
#ifndef PORTOLAN_DRAIN_H
#define PORTOLAN_DRAIN_H

#include "peer.h"

#include <stdint.h>

struct drain {
    int *order;
    MPI_Request *requests;
};

static struct drain *drain_new(struct peer *peer)
{
    int count = (int)peer->plan;
    struct drain *drain = peer_memory(sizeof *drain);
    drain->order = peer_memory((size_t)count * sizeof *drain->order);
    drain->requests = peer_memory((size_t)count * sizeof *drain->requests);
    peer->state = drain;
    return drain;
}

static inline void drain_reverse(struct peer *peer)
{
    struct drain *drain = drain_new(peer);
    for (int at = 0; at < (int)peer->plan; at++)
        drain->order[at] = (int)peer->plan - 1 - at;
}

static inline void drain_random(struct peer *peer)
{
    struct drain *drain = drain_new(peer);
    uint64_t state = 1;
    for (int at = 0; at < (int)peer->plan; at++)
        drain->order[at] = at;
    for (int last = (int)peer->plan - 1; last > 0; last--) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int other = (int)((state >> 33) % (uint64_t)(last + 1));
        int kept = drain->order[last];
        drain->order[last] = drain->order[other];
        drain->order[other] = kept;
    }
}

static inline void drain_free(struct peer *peer)
{
    struct drain *drain = peer->state;
    free(drain->order);
    free(drain->requests);
    free(drain);
}

static inline void drain_rounds(struct peer *peer, long rounds)
{
    struct drain *drain = peer->state;
    int count = (int)peer->plan, partner = peer->partner;
    char answer[4] = {0};
    for (long round = 0; round < rounds && partner >= 0; round++) {
        if (peer->starts) {
            MPI_Recv(answer, sizeof answer, MPI_BYTE, partner, ANSWER, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            for (int at = 0; at < count; at++)
                MPI_Isend(peer->send, 8, MPI_BYTE, partner, WAITING + drain->order[at],
                          MPI_COMM_WORLD, &drain->requests[at]);
            MPI_Waitall(count, drain->requests, MPI_STATUSES_IGNORE);
            MPI_Recv(answer, sizeof answer, MPI_BYTE, partner, ANSWER, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            for (int at = 0; at < count; at++)
                MPI_Irecv(peer->receive, 8, MPI_BYTE, partner, WAITING + at, MPI_COMM_WORLD,
                          &drain->requests[at]);
            MPI_Send(answer, sizeof answer, MPI_BYTE, partner, ANSWER, MPI_COMM_WORLD);
            MPI_Waitall(count, drain->requests, MPI_STATUSES_IGNORE);
            MPI_Send(answer, sizeof answer, MPI_BYTE, partner, ANSWER, MPI_COMM_WORLD);
        }
    }
}

static inline double drain_each(const struct peer *peer, double seconds, long rounds)
{
    return seconds / ((double)rounds * (double)peer->plan) * 1e6;
}

#endif
