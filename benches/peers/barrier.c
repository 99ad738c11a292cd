/* A barrier of all ranks in microseconds, as osu_barrier. */
#include "peer.h"

static void barriers(struct peer *peer, long rounds)
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
    static const struct peer_program program = {.counts = PEER_ALL, .run = barriers, .value = each};
    return peer_main(argc, argv, &program);
}
