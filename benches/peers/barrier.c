/* A barrier of all ranks in microseconds, as osu_barrier. */
#include "peer.h"

static void barriers(const struct peer *peer, long rounds)
{
    (void)peer;
    for (long round = 0; round < rounds; round++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static double each(const struct peer *peer, double seconds, long rounds)
{
    (void)peer;
    return seconds / (double)rounds * 1e6;
}

int main(int argc, char **argv)
{
    return peer_main(argc, argv, 0, barriers, each, PEER_MEAN);
}
