/* Receives and messages that wait while other messages pass: benches/src/waiting.rs. */
#ifndef PORTOLAN_WAITING_H
#define PORTOLAN_WAITING_H

#include "ping_pong.h"

static char waiting_aside[8];

static void waiting_receives(struct peer *peer, int source)
{
    MPI_Request *waiting = peer_memory((peer->plan + 1) * sizeof *waiting);
    for (int i = 0; i < (int)peer->plan && peer->partner >= 0; i++)
        MPI_Irecv(waiting_aside, sizeof waiting_aside, MPI_BYTE, source, WAITING + i, MPI_COMM_WORLD,
                  &waiting[i]);
    peer->state = waiting;
}

static inline void put_receives(struct peer *peer)
{
    waiting_receives(peer, peer->partner);
}

static inline void put_wildcards(struct peer *peer)
{
    waiting_receives(peer, MPI_ANY_SOURCE);
}

static inline void cancel_receives(struct peer *peer)
{
    MPI_Request *waiting = peer->state;
    for (int i = 0; i < (int)peer->plan && peer->partner >= 0; i++) {
        MPI_Cancel(&waiting[i]);
        MPI_Wait(&waiting[i], MPI_STATUS_IGNORE);
    }
    free(waiting);
}

static inline void put_messages(struct peer *peer)
{
    MPI_Request *waiting = peer_memory((2 * peer->plan + 1) * sizeof *waiting);
    for (int i = 0; i < (int)peer->plan && peer->partner >= 0; i++)
        MPI_Isend(peer->send, 8, MPI_BYTE, peer->partner, WAITING + i, MPI_COMM_WORLD, &waiting[i]);
    peer->state = waiting;
}

static inline void take_messages(struct peer *peer)
{
    MPI_Request *waiting = peer->state;
    int count = peer->partner >= 0 ? (int)peer->plan : 0;
    for (int i = 0; i < count; i++)
        MPI_Irecv(waiting_aside, sizeof waiting_aside, MPI_BYTE, peer->partner, WAITING + i,
                  MPI_COMM_WORLD, &waiting[count + i]);
    MPI_Waitall(2 * count, waiting, MPI_STATUSES_IGNORE);
    free(waiting);
}

#endif
