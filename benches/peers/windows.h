/* Windows of messages, for bandwidth and rate: benches/src/pattern/steps.rs, `one_way`. */
#ifndef PORTOLAN_WINDOWS_H
#define PORTOLAN_WINDOWS_H

#include "peer.h"

static inline void start_sends(const struct peer *peer, MPI_Request *requests)
{
    size_t at = 0;
    for (int i = 0; i < peer->window; i++, at = peer_next(peer, at))
        MPI_Isend(peer->send + at, (int)peer->bytes, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD,
                  &requests[i]);
}

static inline void start_receives(const struct peer *peer, MPI_Request *requests)
{
    size_t at = 0;
    for (int i = 0; i < peer->window; i++, at = peer_next(peer, at))
        MPI_Irecv(peer->receive + at, (int)peer->bytes, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD,
                  &requests[i]);
}

static inline void one_way(struct peer *peer, long rounds)
{
    char answer[4] = {0};
    for (long round = 0; round < rounds && peer->partner >= 0; round++) {
        if (peer->starts) {
            start_sends(peer, peer->requests);
            MPI_Waitall(peer->window, peer->requests, MPI_STATUSES_IGNORE);
            MPI_Recv(answer, sizeof answer, MPI_BYTE, peer->partner, ANSWER, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            start_receives(peer, peer->requests);
            MPI_Waitall(peer->window, peer->requests, MPI_STATUSES_IGNORE);
            MPI_Send(answer, sizeof answer, MPI_BYTE, peer->partner, ANSWER, MPI_COMM_WORLD);
        }
    }
}

#endif
