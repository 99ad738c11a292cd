/* A message to the rank `distance` above, and one from the rank `distance` below:
 * benches/src/direct.rs. */
#ifndef PORTOLAN_TALK_H
#define PORTOLAN_TALK_H

#include "peer.h"

enum { TALKS = 32 };

static inline void talk(const struct peer *peer, int distance)
{
    int above = (peer->rank + distance) % peer->size;
    int below = (peer->rank + peer->size - distance) % peer->size;
    int out = peer->rank, back = -1;
    MPI_Sendrecv(&out, 1, MPI_INT, above, MESSAGE, &back, 1, MPI_INT, below, MESSAGE, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (back != below)
        peer_fail("a message came from somebody else", "this should not be");
}

/* Memory of this process in KiB, without copies of files. */
static inline double proportional_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double sum = 0, kib;
    if (!file)
        peer_fail("cannot be read", "/proc/self/smaps_rollup");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Pss_Anon: %lf", &kib) == 1 || sscanf(line, "Pss_Shmem: %lf", &kib) == 1)
            sum += kib;
    fclose(file);
    return sum;
}

/* Waits until all ranks are here: a message goes around the ring twice. In a barrier, ranks
 * would talk that otherwise do not, and would need memory for each other. */
static inline void meet(struct peer *peer)
{
    int above = (peer->rank + 1) % peer->size, below = (peer->rank + peer->size - 1) % peer->size;
    char token = 0;
    for (int time = 0; time < 2 && peer->size > 1; time++) {
        if (peer->rank > 0)
            MPI_Recv(&token, 1, MPI_CHAR, below, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_CHAR, above, MESSAGE, MPI_COMM_WORLD);
        if (peer->rank == 0)
            MPI_Recv(&token, 1, MPI_CHAR, below, MESSAGE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Memory after the rank has exchanged messages with ranks up to `farthest` away on either side. */
static inline double memory_after(struct peer *peer, int farthest)
{
    for (int distance = 1; distance <= farthest; distance++)
        for (int time = 0; time < TALKS; time++)
            talk(peer, distance);
    meet(peer);
    double kib = proportional_kib();
    meet(peer);
    return kib;
}

#endif
