/* To and fro: benches/src/pattern.rs, `ping_pong`. */
#ifndef PORTOLAN_PING_PONG_H
#define PORTOLAN_PING_PONG_H

#include "peer.h"

static void ping_pong(const struct peer *peer, long rounds)
{
    int bytes = (int)peer->bytes;
    for (long round = 0; round < rounds && peer->partner >= 0; round++) {
        if (peer->starts) {
            MPI_Send(peer->send, bytes, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD);
            MPI_Recv(peer->receive, bytes, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(peer->receive, bytes, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            MPI_Send(peer->send, bytes, MPI_BYTE, peer->partner, MESSAGE, MPI_COMM_WORLD);
        }
    }
}

static double one_way_time(const struct peer *peer, double seconds, long rounds)
{
    (void)peer;
    return seconds / (2.0 * (double)rounds) * 1e6;
}

#endif
