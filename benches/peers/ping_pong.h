/* Ping-pong: benches/src/pattern/steps.rs, `ping_pong`. */
#ifndef PORTOLAN_PING_PONG_H
#define PORTOLAN_PING_PONG_H

#include "peer.h"

static void ping_pong_with(const struct peer *peer, long rounds, int tag, char *send, char *receive)
{
    int bytes = (int)peer->bytes, partner = peer->partner;
    for (long round = 0; round < rounds && partner >= 0; round++) {
        if (peer->starts) {
            MPI_Send(send, bytes, MPI_BYTE, partner, tag, MPI_COMM_WORLD);
            MPI_Recv(receive, bytes, MPI_BYTE, partner, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(receive, bytes, MPI_BYTE, partner, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(send, bytes, MPI_BYTE, partner, tag, MPI_COMM_WORLD);
        }
    }
}

static inline void ping_pong(struct peer *peer, long rounds)
{
    ping_pong_with(peer, rounds, MESSAGE, peer->send, peer->receive);
}

static inline double one_way_time(const struct peer *peer, double seconds, long rounds)
{
    (void)peer;
    return seconds / (2.0 * (double)rounds) * 1e6;
}

#endif
