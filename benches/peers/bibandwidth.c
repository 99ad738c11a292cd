/* Megabytes (10^6 bytes) per second in both directions at the same time, as osu_bibw:
 * benches/src/pattern/steps.rs, `both_ways`. */
#include "windows.h"

static void both_ways(struct peer *peer, long rounds)
{
    for (long round = 0; round < rounds && peer->partner >= 0; round++) {
        start_receives(peer, peer->requests);
        start_sends(peer, peer->requests + peer->window);
        MPI_Waitall(2 * peer->window, peer->requests, MPI_STATUSES_IGNORE);
    }
}

static double bandwidth(const struct peer *peer, double seconds, long rounds)
{
    return 2.0 * (double)rounds * peer->window * (double)peer->bytes / seconds / 1e6;
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {.pool = PEER_SUM, .run = both_ways, .value = bandwidth};
    return peer_main(argc, argv, &program);
}
